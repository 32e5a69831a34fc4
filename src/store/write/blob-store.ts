import { hash } from 'node:crypto'
import { existsSync, mkdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { MillraceError } from '../../errors/index.ts'
import { bytesOf } from '../../kit/index.ts'
import { syncFolder, writeAtomically } from '../run/atomic-write.ts'

/** Longer JSON goes into a file, so that pages stay small and equal tool outputs are kept once. */
const maxInlineCharacters = 64 * 1024
/** Longer token arrays go into a file: they seldom repeat, so that pays only for larger ones. */
const maxInlineTokenBytes = 256 * 1024
const maxRemembered = 4_096
const prefix = 'blob:'

/**
 * Large payloads, one file each: `blobs/ab/<SHA-256>`. The column holds `blob:<hash>` instead, which no inline JSON begins
 * with. A file is durable before `keep…` returns, hence before any row that names it.
 */
export class BlobStore {
  readonly #folder: string
  /** Files known to be durable. Bounded; a forgotten file costs a look at the disk. */
  readonly #known = new Set<string>()

  constructor(folder: string) {
    this.#folder = folder
  }

  keepText(text: string): string {
    return text.length <= maxInlineCharacters ? text : this.#put(Buffer.from(text))
  }

  keepTokens(tokens: Int32Array | Float32Array | Uint8Array | undefined): Uint8Array | string | null {
    if (!tokens) return null
    const bytes = bytesOf(tokens)
    return bytes.byteLength <= maxInlineTokenBytes ? bytes : this.#put(bytes)
  }

  /** Checks the type, since another program may have written anything into the column. */
  text(stored: unknown): string {
    if (typeof stored !== 'string') throw new Error('it is not text')
    return isReference(stored) ? this.#read(stored).toString() : stored
  }

  /** The bytes at the start of a buffer of their own, so that any typed array can be laid over them. */
  bytes(stored: Uint8Array | string): ArrayBuffer {
    const bytes = typeof stored === 'string' ? this.#read(stored) : stored
    return new Uint8Array(bytes).buffer
  }

  problem(reference: string): string | undefined {
    const path = this.#path(reference)
    if (!existsSync(path)) return `${path} is missing`
    try {
      return fits(readFileSync(path), reference) ? undefined : `${path} is damaged`
    } catch (error) {
      return `${path} cannot be read (${String((error as NodeJS.ErrnoException).code)})`
    }
  }

  #read(reference: string): Buffer {
    const path = this.#path(reference)
    const bytes = this.#file(path)
    if (!fits(bytes, reference)) throw new Error(`${path} is damaged`)
    return bytes
  }

  #file(path: string): Buffer {
    try {
      return readFileSync(path)
    } catch (error) {
      if (existsSync(dirname(this.#folder))) throw error
      // The database is open and can still be read. Its missing blobs are not damaged. Clients see this message, so the path is
      // in the cause only.
      const message = 'the run was moved or deleted while it was read; `millrace list` shows all runs'
      throw new MillraceError('run_not_found', message, { cause: error })
    }
  }

  #put(bytes: Uint8Array): string {
    const digest = hash('sha256', bytes)
    const reference = prefix + digest
    if (this.#known.has(digest)) return reference
    const folder = join(this.#folder, digest.slice(0, 2))
    const path = join(folder, digest)
    if (holds(path, bytes)) {
      // Perhaps a launch was killed between its rename and its sync of the folder.
      syncFolder(folder)
    } else {
      if (mkdirSync(folder, { recursive: true }) !== undefined) syncFolder(this.#folder)
      writeAtomically(path, bytes)
    }
    if (this.#known.size >= maxRemembered) this.#known.clear()
    this.#known.add(digest)
    return reference
  }

  #path(reference: string): string {
    const digest = digestOf(reference)
    return join(this.#folder, digest.slice(0, 2), digest)
  }
}

/** Compares the content, so that a blob that was damaged since is written anew. */
function holds(path: string, bytes: Uint8Array): boolean {
  try {
    return readFileSync(path).equals(bytes)
  } catch {
    return false
  }
}

function fits(bytes: Uint8Array, reference: string): boolean {
  return hash('sha256', bytes) === digestOf(reference)
}

export function isReference(stored: unknown): stored is string {
  return typeof stored === 'string' && stored.startsWith(prefix)
}

function digestOf(reference: string): string {
  return reference.slice(prefix.length)
}
