import { isUtf8 } from 'node:buffer'
import type { ReadStream, Stats } from 'node:fs'
import { type FileHandle, open, stat } from 'node:fs/promises'
import { basename, resolve } from 'node:path'
import { pipeline, type Readable } from 'node:stream'
import { fileURLToPath } from 'node:url'
import { createGunzip } from 'node:zlib'
import { MillraceError } from '../../errors/index.ts'
import type { TaskRow, TaskSource } from '../define/define-environment.ts'
import { fileNotFound, isModuleName } from '../load/locate-environment.ts'

/** Turns bytes into rows, in batches of about one chunk's worth, so that little is held. */
type RowReader = (chunks: AsyncIterable<Buffer>, label: string) => AsyncIterable<readonly TaskRow[]>

/** How many batches may be held back after the file was read to its end: a packed file may hold a thousand times its size. */
const maxBufferedBatches = 4

/** The tasks in a file, read as they are asked for. Their number is extrapolated from the part that was read. */
export class FileSource implements TaskSource {
  readonly label: string
  readonly isTable: boolean
  readonly #path: string
  readonly #read: RowReader
  #chunks: FileChunks | undefined
  #rows = 0
  #state: 'unread' | 'reading' | 'ended' = 'unread'

  constructor(path: string | URL, read: RowReader, { isTable = false }: { readonly isTable?: boolean } = {}) {
    const isUrl = path instanceof URL || path.startsWith('file:')
    this.#path = isUrl ? fileURLToPath(path) : resolve(path)
    this.label = basename(this.#path)
    this.isTable = isTable
    this.#read = read
  }

  async *rows(): AsyncGenerator<TaskRow, void, void> {
    using chunks = await FileChunks.open(this.#path)
    this.#chunks = chunks
    this.#rows = 0
    this.#state = 'reading'
    // The last batches are held back until the reader has ended: then the number of tasks in a small file is known at its
    // first row.
    let buffered: (readonly TaskRow[])[] = []
    const encoding = new Utf8Check()
    for await (const batch of this.#read(encoding.watch(chunks), this.label)) {
      this.#rows += batch.length
      buffered.push(batch.map(encoding.row))
      if (chunks.fractionRead === 1 && buffered.length < maxBufferedBatches) continue
      for (const row of buffered.flat()) yield row
      buffered = []
    }
    this.#state = 'ended'
    for (const row of buffered.flat()) yield row
  }

  total(): { count: number; exact: boolean } | undefined {
    if (this.#state === 'ended') return { count: this.#rows, exact: true }
    const fraction = this.#chunks?.fractionRead ?? 0
    if (this.#rows === 0 || fraction === 0) return undefined
    return { count: Math.max(this.#rows, Math.round(this.#rows / fraction)), exact: false }
  }
}

/** Small enough that the rows of one chunk are parsed within a millisecond or so. */
const chunkBytes = 64 * 1024
const gzipMagic = 0x1f8b

/** The bytes of a file, unpacked if it is gzip, whatever its name. They can be read only once. */
class FileChunks implements AsyncIterable<Buffer>, Disposable {
  readonly #file: ReadStream
  readonly #bytes: Readable
  readonly #size: number

  private constructor(file: ReadStream, size: number, isPacked: boolean) {
    this.#file = file
    this.#size = size
    // An error in the file or in unpacking ends the loop over the bytes; the callback only keeps it from being thrown a
    // second time.
    this.#bytes = isPacked ? pipeline(file, createGunzip({ chunkSize: chunkBytes }), () => {}) : file
  }

  static async open(path: string): Promise<FileChunks> {
    let stats: Stats
    let handle: FileHandle
    try {
      stats = await stat(path)
      handle = await open(path)
    } catch (error) {
      // An environment is often named like its data, so modules are not suggested.
      throw await fileNotFound(path, error, (other) => !isModuleName(other))
    }
    await using ends = new AsyncDisposableStack()
    ends.use(handle)
    if (stats.isDirectory()) {
      throw new MillraceError('file_not_found', `${path} is a folder, not a file`, { data: { path } })
    }
    // A pipe cannot be looked into, so its name decides.
    const isPacked = stats.isFile() ? await beginsAsGzip(handle) : path.endsWith('.gz')
    ends.move()
    return new FileChunks(handle.createReadStream({ highWaterMark: chunkBytes }), stats.size, isPacked)
  }

  /** The fraction of the file that was read; 0 if its size is not known. */
  get fractionRead(): number {
    return this.#size > 0 ? Math.min(1, this.#file.bytesRead / this.#size) : 0
  }

  [Symbol.asyncIterator](): AsyncIterator<Buffer> {
    return this.#bytes[Symbol.asyncIterator]()
  }

  /** Closes the file, even if nothing of it was read. */
  [Symbol.dispose](): void {
    this.#file.destroy()
  }
}

async function beginsAsGzip(handle: FileHandle): Promise<boolean> {
  const { bytesRead, buffer } = await handle.read(Buffer.alloc(2), 0, 2, 0)
  return bytesRead === 2 && buffer.readUInt16BE() === gzipMagic
}

const replacementCharacter = '\u{fffd}'
/** Marks bytes that are no text. Unicode reserves this character for such uses. */
const noText = '\u{ffff}'
const lineFeed = 0x0a

/**
 * Finds rows of a file that is not UTF-8. Decoding silently replaces invalid bytes by a replacement character, so a table in
 * another encoding would be asked and scored with wrong words. A valid file may contain such a character too, so the bytes
 * decide: a line with invalid bytes is marked before it is decoded.
 */
export class Utf8Check {
  #isBroken = false

  async *watch(chunks: AsyncIterable<Buffer>): AsyncGenerator<Buffer, void, void> {
    let rest: Buffer = Buffer.alloc(0)
    for await (const chunk of chunks) {
      const bytes = rest.length > 0 ? Buffer.concat([rest, chunk]) : chunk
      const end = lastWholeCharacter(bytes)
      rest = bytes.subarray(end)
      if (end > 0) yield this.#marked(bytes.subarray(0, end))
    }
    if (rest.length > 0) yield this.#marked(rest)
  }

  readonly row = (row: TaskRow): TaskRow => {
    if (!this.#isBroken) return row
    const text = 'problem' in row ? row.problem : JSON.stringify(row.value)
    return text.includes(noText) ? { at: row.at, problem: 'it is not UTF-8; save the file in this encoding' } : row
  }

  #marked(bytes: Buffer): Buffer {
    if (isUtf8(bytes)) return bytes
    this.#isBroken = true
    const lines: Buffer[] = []
    for (let start = 0; start < bytes.length;) {
      const end = bytes.indexOf(lineFeed, start) + 1 || bytes.length
      const line = bytes.subarray(start, end)
      lines.push(isUtf8(line) ? line : Buffer.from(line.toString().replaceAll(replacementCharacter, noText)))
      start = end
    }
    return Buffer.concat(lines)
  }
}

/** The end of the last whole character; the bytes after it belong to a character that continues in the next chunk. */
function lastWholeCharacter(bytes: Buffer): number {
  for (let back = 1; back <= 3 && back <= bytes.length; back += 1) {
    const byte = bytes.readUInt8(bytes.length - back)
    // The first byte of a character tells its length; the other bytes begin with the bits 10.
    const size = byte < 0xc0 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4
    if (size > back) return bytes.length - back
    if (byte < 0x80 || size > 1) break
  }
  return bytes.length
}
