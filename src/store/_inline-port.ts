import type { WireError } from '../errors/index.ts'
import type { QueuedEntry } from './_batch-codec.ts'
import type { BatchCommits } from './_batch-commits.ts'
import { encodeFrame } from './_frame-codec.ts'
import { SpoolFile } from './_spool-file.ts'
import type { OwnThreadPort } from './journal-client.ts'

/** How much the spool may hold, and for how long; then all of it is brought into the database. */
const spoolLimits = { maxBatches: 64, maxBytes: 1024 * 1024, maxMs: 100 } as const

/**
 * Puts batches on disk as they are sent, and answers as soon as the sender has returned. A batch becomes a frame of the spool,
 * which is synced; many of them share a commit to the database, which takes three times the CPU.
 */
export class InlinePort implements OwnThreadPort {
  readonly #commits: BatchCommits
  readonly #spool: SpoolFile
  /** The number of the last frame. */
  #number: number
  /** What is in the spool and not in the database. */
  #batches: (readonly QueuedEntry[])[] = []
  #bytes = 0
  #timer: NodeJS.Timeout | undefined
  #onAnswer: ((answer: WireError | null) => void) | undefined

  constructor(folder: string, commits: BatchCommits) {
    this.#commits = commits
    this.#number = commits.lastFrame
    this.#spool = new SpoolFile(folder)
  }

  write(entries: readonly QueuedEntry[], bytes: number): void {
    const isSpooled = this.#hasRoomFor(bytes) && this.#trySpool(entries)
    this.#batches.push(entries)
    this.#bytes += bytes
    if (isSpooled) this.#timer ??= setTimeout(this.#onTime, spoolLimits.maxMs)
    const answer = isSpooled ? null : this.#commit()
    queueMicrotask(() => this.#onAnswer?.(answer))
  }

  bringIn(): void {
    const failure = this.#commit()
    if (failure) this.#onAnswer?.(failure)
  }

  /** Tells the client if nothing more can be written: it may not have written anything for a while. */
  tellFailure(): void {
    const failure = this.#commits.failureNow()
    if (failure) this.#onAnswer?.(failure)
  }

  on(event: 'message' | 'close', listener: (answer: WireError | null) => void): void {
    if (event === 'message') this.#onAnswer = listener
  }

  off(event: 'message' | 'close'): void {
    if (event === 'message') this.#onAnswer = undefined
  }

  /** Batches that cannot be committed stay in the spool, where the next opening of the run finds them. */
  close(): void {
    this.#onAnswer = undefined
    if (this.#commit()) this.#spool.close()
    else this.#spool.remove()
  }

  #hasRoomFor(bytes: number): boolean {
    return this.#batches.length + 1 < spoolLimits.maxBatches && this.#bytes + bytes <= spoolLimits.maxBytes
  }

  #trySpool(entries: readonly QueuedEntry[]): boolean {
    // Counts even if it fails: whatever of the frame is in the file must not be brought in after the database has it.
    this.#number += 1
    try {
      this.#spool.append({ number: this.#number, bytes: encodeFrame(entries) })
      this.#spool.sync()
      return true
    } catch {
      // If the disk is full, the write to the database fails with a better message.
      return false
    }
  }

  readonly #onTime = (): void => this.bringIn()

  #commit(): WireError | null {
    clearTimeout(this.#timer)
    this.#timer = undefined
    if (this.#batches.length === 0) return null
    const failure = this.#commits.commit(() => this.#batches, this.#number)
    if (failure) return failure
    this.#batches = []
    this.#bytes = 0
    this.#spool.rewind()
    return null
  }
}
