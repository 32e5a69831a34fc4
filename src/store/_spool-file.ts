import { closeSync, openSync, readFileSync, rmSync, writevSync } from 'node:fs'
import { join } from 'node:path'
import { crc32 } from 'node:zlib'
import { MillraceError } from '../errors/index.ts'
import { folderFailure, runFiles } from './run-folder.ts'
import { writeFully } from './_write-atomically.ts'

/** Entries that were written down together. Numbers go on from one to the next, for as long as there is a run. */
export interface SpooledFrame {
  readonly number: number
  readonly bytes: Uint8Array
}

/** Frames of another layout are not guessed at. */
const signature = Buffer.from('millrace spool 1\n')

/** Before each frame: the checksum of all that follows, how many bytes it has, its number. */
const headBytes = 16
const at = { checksum: 0, length: 4, number: 8 } as const

/** What the file may grow to: a second of a busy gateway. */
const maxBytes = 16 * 1024 * 1024

/**
 * A file in the folder of a run for what is on its way into the database, so that no end of the process takes it back. Frames are
 * written one after another and never synced; once all are in the database the next is written over the first.
 */
export class SpoolFile {
  readonly #path: string
  readonly #descriptor: number
  readonly #head = Buffer.alloc(headBytes)
  #end = signature.length

  /** Whatever it held is in the database: see `JournalWriter.open`. */
  constructor(folder: string) {
    this.#path = join(folder, runFiles.spool)
    try {
      this.#descriptor = openSigned(this.#path)
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

  rewind(): void {
    this.#end = signature.length
  }

  close(): void {
    closeSync(this.#descriptor)
  }

  remove(): void {
    this.close()
    rmSync(this.#path, { force: true })
  }
}

/** The frames of a process that was killed, up to one that was cut off or is left from an earlier round. */
export function* spooledFrames(folder: string): Generator<SpooledFrame, void, void> {
  const file = readSpool(join(folder, runFiles.spool))
  let offset = signature.length
  let next: number | undefined
  while (offset + headBytes <= file.length) {
    const start = offset + headBytes
    const head = file.subarray(offset, start)
    const number = head.readDoubleLE(at.number)
    const bytes = file.subarray(start, start + head.readUInt32LE(at.length))
    if (head.readUInt32LE(at.checksum) !== checksum(head, bytes) || number !== (next ?? number)) return
    yield { number, bytes }
    next = number + 1
    offset = start + bytes.length
  }
}

export function removeSpool(folder: string): void {
  rmSync(join(folder, runFiles.spool), { force: true })
}

function openSigned(path: string): number {
  const descriptor = openSync(path, 'w')
  try {
    writeFully(descriptor, signature)
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
  // A process that was killed at its start may have left less of it.
  const begin = file.subarray(0, signature.length)
  if (begin.equals(signature.subarray(0, begin.length))) return file
  throw new MillraceError(
    'store_version',
    `${path} was not written by this version of Millrace; open the run once with the one that wrote it, or restore the file`,
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
