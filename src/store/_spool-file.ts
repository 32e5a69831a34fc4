import { randomBytes } from 'node:crypto'
import { closeSync, fdatasyncSync, fsyncSync, openSync, readFileSync, rmSync, writevSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { crc32 } from 'node:zlib'
import { MillraceError } from '../errors/index.ts'
import { folderFailure, runFiles } from './run-folder.ts'
import { syncFolder, writeFully } from './_write-atomically.ts'

/** Entries that were written down together. Frames are numbered one after another for as long as the run exists. */
export interface SpooledFrame {
  readonly number: number
  readonly bytes: Uint8Array
}

/** Frames of another version are refused, not guessed at. */
const version = 2
const signature = Buffer.from(`millrace spool ${version}\n`)
const anySignature = /^millrace spool (\d{1,9})\n/

/**
 * The length of a file's marker: random bytes after the signature and before each frame. The marker leads to the next frame after
 * a damaged one. It cannot occur in messages, because nobody outside knows it.
 */
const markerBytes = 8
const beginBytes = signature.length + markerBytes

/** Before each frame: the marker, the checksum of all that follows, how many bytes it has, its number. */
const headBytes = 24
const at = { checksum: 8, length: 12, number: 16 } as const

/** The end of error messages: the way out without another copy of the spool. */
export const spoolWayOut = `or remove ${runFiles.spool} to go on with what ${runFiles.database} has`

/** The size that the file may grow to: a second of a busy gateway. */
const maxBytes = 16 * 1024 * 1024

/**
 * A file in the folder of a run for entries on their way into the database, so that they survive an end of the process. Frames
 * are written one after another; once all are in the database the next is written over the first.
 */
export class SpoolFile {
  readonly #path: string
  readonly #descriptor: number
  readonly #head = Buffer.alloc(headBytes)
  #end = beginBytes

  /** Starts with an empty file: the frames of an earlier one are in the database by now, see `JournalWriter.open`. */
  constructor(folder: string) {
    this.#path = join(folder, runFiles.spool)
    try {
      const marker = randomBytes(markerBytes)
      marker.copy(this.#head)
      this.#descriptor = openSigned(this.#path, marker)
    } catch (error) {
      throw folderFailure(error, folder)
    }
  }

  hasRoomFor(bytes: number): boolean {
    return this.#end + headBytes + bytes <= maxBytes
  }

  /** When it returns, the frame is with the operating system. */
  append({ number, bytes }: SpooledFrame): void {
    writeHead(this.#head, number, bytes)
    const frameBytes = headBytes + bytes.length
    const written = writevSync(this.#descriptor, [this.#head, bytes], this.#end)
    if (written < frameBytes) {
      throw new MillraceError('store_failed', `${this.#path} took ${written} of ${frameBytes} bytes`)
    }
    this.#end += frameBytes
  }

  /** When it returns, all frames are on disk. */
  sync(): void {
    fdatasyncSync(this.#descriptor)
  }

  rewind(): void {
    this.#end = beginBytes
  }

  close(): void {
    closeSync(this.#descriptor)
  }

  remove(): void {
    this.close()
    rmSync(this.#path, { force: true })
  }
}

export interface LeftFrames {
  /** The frames with a number above the last one in the database, in order. Numbers missing among them are lost frames. */
  readonly frames: readonly SpooledFrame[]
  /** The number of the file's first frame, if it can be read. */
  readonly first: number | undefined
}

/** Reads the frames that a killed process left out of the database. A torn frame at the end was never acknowledged. */
export function leftFrames(folder: string, lastFrame: number): LeftFrames {
  const path = join(folder, runFiles.spool)
  const file = readSpool(path)
  const marker = file.subarray(signature.length, beginBytes)
  const frames: SpooledFrame[] = []
  let hasAny = false
  let last = lastFrame
  let offset = beginBytes
  while (offset >= 0 && offset < file.length) {
    const frame = frameAt(file, offset, marker)
    hasAny ||= frame !== undefined
    // Frames with lower numbers are in the database, or left from an earlier round.
    if (frame && frame.number > last) {
      frames.push(frame)
      last = frame.number
    }
    offset = frame ? offset + headBytes + frame.bytes.length : file.indexOf(marker, offset + 1)
  }
  if (!hasAny && hasOtherMarker(file, marker)) throw damagedBegin(path)
  return { frames, first: frameAt(file, beginBytes, marker)?.number }
}

/** Whether the first frame has another marker. Zeros and a short rest are none: a kill or a power loss leaves those. */
function hasOtherMarker(file: Buffer, marker: Buffer): boolean {
  const first = file.subarray(beginBytes, beginBytes + markerBytes)
  return first.length === markerBytes && first.some((byte) => byte !== 0) && !first.equals(marker)
}

function frameAt(file: Buffer, offset: number, marker: Buffer): SpooledFrame | undefined {
  const start = offset + headBytes
  const head = file.subarray(offset, start)
  if (head.length < headBytes || !head.subarray(0, markerBytes).equals(marker)) return undefined
  const length = head.readUInt32LE(at.length)
  const bytes = file.subarray(start, start + length)
  if (bytes.length < length || head.readUInt32LE(at.checksum) !== checksum(head, bytes)) return undefined
  return { number: head.readDoubleLE(at.number), bytes }
}

export function removeSpool(folder: string): void {
  rmSync(join(folder, runFiles.spool), { force: true })
}

function openSigned(path: string, marker: Buffer): number {
  const descriptor = openSync(path, 'w')
  try {
    writeFully(descriptor, Buffer.concat([signature, marker]))
    // So that no loss of power leaves a file whose frames cannot be found.
    fsyncSync(descriptor)
    syncFolder(dirname(path))
    return descriptor
  } catch (error) {
    closeSync(descriptor)
    throw error
  }
}

function readSpool(path: string): Buffer {
  let file: Buffer
  try {
    file = readFileSync(path)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return Buffer.alloc(0)
    throw error
  }
  // A process that was killed at its start may have left only part of the signature.
  const begin = file.subarray(0, signature.length)
  if (!begin.equals(signature.subarray(0, begin.length))) throw unknownBegin(path, file)
  return file
}

function unknownBegin(path: string, file: Buffer): MillraceError {
  const [, other] = anySignature.exec(file.toString('latin1', 0, 32)) ?? []
  if (other === undefined) return damagedBegin(path)
  return new MillraceError(
    'store_version',
    `${path} was written by another version of Millrace (it is of version ${other}, and this one reads ${version}); open the run once with that one, ${spoolWayOut}`,
  )
}

function damagedBegin(path: string): MillraceError {
  return new MillraceError(
    'store_failed',
    `${path} is damaged at its beginning, so that nothing in it can be found, or it is no spool; restore the file, ${spoolWayOut}`,
  )
}

function writeHead(head: Buffer, number: number, bytes: Uint8Array): void {
  head.writeUInt32LE(bytes.length, at.length)
  head.writeDoubleLE(number, at.number)
  head.writeUInt32LE(checksum(head, bytes), at.checksum)
}

function checksum(head: Buffer, bytes: Uint8Array): number {
  return crc32(bytes, crc32(head.subarray(at.length)))
}
