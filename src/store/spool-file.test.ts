import { readFileSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { SpoolFile, type SpooledFrame, spooledFrames } from './_spool-file.ts'
import { runFiles } from './run-folder.ts'
import { openFiles, temporaryFolder } from '../../test/store/_fixtures.ts'

const frame = (number: number, text = `frame ${number}`): SpooledFrame => ({ number, bytes: Buffer.from(text) })
const read = (folder: string): string[] =>
  Array.from(spooledFrames(folder), ({ number, bytes }) => `${number} ${Buffer.from(bytes).toString()}`)

function spooled(frames: readonly SpooledFrame[]) {
  const folder = temporaryFolder()
  const file = new SpoolFile(folder.path)
  for (const each of frames) file.append(each)
  return {
    file,
    folder: folder.path,
    path: join(folder.path, runFiles.spool),
    [Symbol.dispose]: () => {
      file.remove()
      folder[Symbol.dispose]()
    },
  }
}

test('frames are read back in order, while their file is open and later', () => {
  using spool = spooled([frame(7), frame(8, ''), frame(9, 'x'.repeat(100_000))])
  expect(read(spool.folder)).toEqual(['7 frame 7', '8 ', `9 ${'x'.repeat(100_000)}`])
})

test('wherever the file is cut off, the frames before that are read, and nothing else', () => {
  using spool = spooled([frame(1), frame(2), frame(3)])
  const whole = readFileSync(spool.path)
  for (let length = whole.length; length >= 0; length -= 1) {
    truncateSync(spool.path, length)
    const frames = read(spool.folder)
    expect(frames).toEqual(['1 frame 1', '2 frame 2', '3 frame 3'].slice(0, frames.length))
    expect(frames.length).toBe(length === whole.length ? 3 : Math.max(0, Math.floor((length - 17) / 23)))
  }
})

test('a byte that is not as it was written ends it', () => {
  using spool = spooled([frame(1), frame(2)])
  const whole = readFileSync(spool.path)
  for (let offset = 17; offset < whole.length; offset += 1) {
    const damaged = Buffer.from(whole)
    damaged[offset] = (damaged[offset] ?? 0) ^ 1
    writeFileSync(spool.path, damaged)
    expect(read(spool.folder)).toEqual(offset < 17 + 23 ? [] : ['1 frame 1'])
  }
})

test('what is left of an earlier round is not read, whether it begins where a frame ends or not', () => {
  using spool = spooled([frame(1), frame(2), frame(3)])
  spool.file.rewind()
  spool.file.append(frame(4))
  expect(read(spool.folder)).toEqual(['4 frame 4'])
  spool.file.append(frame(5, 'longer than it was'))
  expect(read(spool.folder)).toEqual(['4 frame 4', '5 longer than it was'])
})

test('it has room for sixteen megabytes, again when it was rewound', () => {
  using spool = spooled([])
  const bytes = new Uint8Array(1024 * 1024)
  let number = 0
  while (spool.file.hasRoomFor(bytes.length)) spool.file.append({ number: ++number, bytes })
  expect(number).toBe(15)
  spool.file.rewind()
  expect(spool.file.hasRoomFor(bytes.length)).toBe(true)
})

test('no file is no frames, and a file of another layout is not guessed at', () => {
  using folder = temporaryFolder()
  expect(read(folder.path)).toEqual([])
  writeFileSync(join(folder.path, runFiles.spool), 'millrace spool 2\nwhatever')
  expect(() => read(folder.path)).toThrow(expect.objectContaining({ code: 'store_version' }))
})

test('a folder that cannot be written to is named', () => {
  using folder = temporaryFolder()
  expect(() => new SpoolFile(join(folder.path, 'gone'))).toThrow(
    expect.objectContaining({ code: 'folder_unwritable', message: expect.stringContaining('gone') }),
  )
})

test('a disk without room for its beginning is called full, and nothing is left open', () => {
  using folder = temporaryFolder()
  symlinkSync('/dev/full', join(folder.path, runFiles.spool))
  expect(() => new SpoolFile(folder.path)).toThrow(expect.objectContaining({ code: 'disk_full' }))
  expect(openFiles('/dev/full')).toEqual([])
})
