import type { ReadStream, Stats } from 'node:fs'
import { open, stat, type FileHandle } from 'node:fs/promises'
import { pipeline, type Readable } from 'node:stream'
import { createGunzip } from 'node:zlib'
import { MillraceError } from '../errors/index.ts'
import { fileNotFound } from './_file-not-found.ts'
import { isModuleName } from './_is-module-name.ts'

/** Small enough that the rows of one chunk are parsed within a millisecond or so. */
const chunkBytes = 64 * 1024
/** The first two bytes of every gzip file. */
const gzipMagic = 0x1f8b

/** The bytes of a file, unpacked if it is gzip, whatever its name. They can be read only once. */
export class FileChunks implements AsyncIterable<Buffer>, Disposable {
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
