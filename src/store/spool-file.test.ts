import { readFileSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { leftFrames, SpoolFile, type SpooledFrame } from './_spool-file.ts'
import { runFiles } from './run-folder.ts'
import { openFiles, temporaryFolder } from '../../test/store/_fixtures.ts'

const frame = (number: number, text = `frame ${number}`): SpooledFrame => ({ number, bytes: Buffer.from(text) })
const read = (folder: string, lastFrame = 0): string[] =>
  leftFrames(folder, lastFrame).frames.map(({ number, bytes }) => `${number} ${Buffer.from(bytes).toString()}`)

/** Signature and marker, and the frames of the tests below. */
const beginBytes = 25
const frameBytes = 31

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
    expect(frames.length).toBe(
      length === whole.length ? 3 : Math.max(0, Math.floor((length - beginBytes) / frameBytes)),
    )
  }
})

test('a byte that is not as it was written costs its own frame', () => {
  using spool = spooled([frame(1), frame(2), frame(3)])
  const whole = readFileSync(spool.path)
  expect(whole.length).toBe(beginBytes + 3 * frameBytes)
  for (let offset = beginBytes; offset < whole.length; offset += 1) {
    const damaged = Buffer.from(whole)
    damaged[offset] = (damaged[offset] ?? 0) ^ 1
    writeFileSync(spool.path, damaged)
    const hit = Math.floor((offset - beginBytes) / frameBytes)
    expect(read(spool.folder)).toEqual(['1 frame 1', '2 frame 2', '3 frame 3'].toSpliced(hit, 1))
    expect(leftFrames(spool.folder, 0).first).toBe(hit === 0 ? undefined : 1)
  }
})

test('a hole costs the frames in it', () => {
  using spool = spooled(Array.from({ length: 9 }, (_, index) => frame(index + 1)))
  const damaged = readFileSync(spool.path)
  damaged.fill(0, beginBytes + 2 * frameBytes + 20, beginBytes + 5 * frameBytes + 1)
  writeFileSync(spool.path, damaged)
  expect(read(spool.folder, 1)).toEqual([2, 7, 8, 9].map((number) => `${number} frame ${number}`))
})

test('a frame in what somebody said is none, though the frame around it is damaged', () => {
  using other = spooled([frame(7, 'not ours')])
  const said = readFileSync(other.path).subarray(beginBytes)
  using spool = spooled([frame(1), { number: 2, bytes: said }, frame(3)])
  const damaged = readFileSync(spool.path)
  damaged[beginBytes + frameBytes + 9] = ~(damaged[beginBytes + frameBytes + 9] ?? 0)
  writeFileSync(spool.path, damaged)
  expect(read(spool.folder)).toEqual(['1 frame 1', '3 frame 3'])
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
  writeFileSync(join(folder.path, runFiles.spool), 'millrace spool 1\nwhatever')
  expect(() => read(folder.path)).toThrow(
    expect.objectContaining({
      code: 'store_version',
      message: expect.stringMatching(
        /is of version 1, and this one reads 2\); .* or remove journal\.spool to go on with what journal\.sqlite has/,
      ),
    }),
  )
})

test.each([
  ['zeros', (file: Buffer) => file.fill(0, 0, 16)],
  ['other text', () => Buffer.from('{"schemaVersion":1}\n')],
  ['another version that is none', (file: Buffer) => file.fill('x', 15, 16)],
  ['another marker', (file: Buffer) => file.fill(0, 17, 25)],
])('a file that begins with %s is called damaged, and how to go on without it', (_, damage) => {
  using spool = spooled([frame(1), frame(2)])
  writeFileSync(spool.path, damage(readFileSync(spool.path)))
  expect(() => read(spool.folder)).toThrow(
    expect.objectContaining({
      code: 'store_failed',
      message: expect.stringMatching(
        /is damaged at its beginning, .* or remove journal\.spool to go on with what journal\.sqlite has/,
      ),
    }),
  )
})

test('where a loss of power left zeros in place of frames, there are none', () => {
  using spool = spooled([frame(1), frame(2)])
  writeFileSync(spool.path, readFileSync(spool.path).fill(0, 25))
  expect(read(spool.folder)).toEqual([])
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
