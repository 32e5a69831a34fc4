import { hash } from 'node:crypto'
import { existsSync, mkdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { MillraceError } from '../errors/index.ts'
import { bytesOf } from '../kit/index.ts'
import { syncFolder, writeAtomically } from './_write-atomically.ts'

interface MaxInline {
  /** Longer JSON goes into a file, so that pages stay small and equal tool outputs are kept once. */
  readonly characters: number
  /** Longer token arrays go into a file. They are written once and seldom repeat, so that pays only for larger ones. */
  readonly tokenBytes: number
}

/** 256 KiB are 65,536 tokens. */
const maxInline: MaxInline = { characters: 64 * 1024, tokenBytes: 256 * 1024 }
/** For a database that is read only once: no files are written. */
export const allInline: MaxInline = { characters: Infinity, tokenBytes: Infinity }
const maxRemembered = 4_096
const prefix = 'blob:'

/**
 * Large payloads, one file each, named by their SHA-256: `blobs/ab/<hash>`. The column holds the text `blob:<hash>` instead,
 * which is unambiguous: no inline JSON starts with a b, and inline tokens are bytes. A file is durable before `keep…` returns,
 * hence before any row that names it.
 */
export class BlobStore {
  readonly #folder: string
  readonly #maxInline: MaxInline
  /** Files known to be durable. Bounded; a forgotten file costs a look at the disk. */
  readonly #known = new Set<string>()

  constructor(folder: string, inline = maxInline) {
    this.#folder = folder
    this.#maxInline = inline
  }

  keepText(text: string): string {
    return text.length <= this.#maxInline.characters ? text : this.#put(Buffer.from(text))
  }

  keepTokens(tokens: Int32Array | Float32Array | Uint8Array | undefined): Uint8Array | string | null {
    if (!tokens) return null
    const bytes = bytesOf(tokens)
    return bytes.byteLength <= this.#maxInline.tokenBytes ? bytes : this.#put(bytes)
  }

  /** Checks the type, since another program may have written anything into the column. */
  text(stored: unknown): string {
    if (typeof stored !== 'string') throw new Error('it is no text')
    return isReference(stored) ? this.#read(stored).toString() : stored
  }

  /** The bytes at the start of a buffer of their own, so that any typed array can be laid over them. */
  bytes(stored: Uint8Array | string): ArrayBuffer {
    const bytes = typeof stored === 'string' ? this.#read(stored) : stored
    return new Uint8Array(bytes).buffer
  }

  /** What is wrong with the file behind a reference, if anything. */
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
      const message = 'the run was moved or deleted while it was read; `millrace list` shows those there are'
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
      // Perhaps a sitting was killed between its rename and its sync of the folder.
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
