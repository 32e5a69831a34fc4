import { MillraceError, type WireError } from '../errors/index.ts'
import { Resource, type LoopLagWindow } from '../kit/index.ts'
import type { QueuedEntry } from './_batch-codec.ts'
import { BatchCommits } from './_batch-commits.ts'
import { WriterFigures } from './_writer-figures.ts'
import type { RetryFailed } from './_writer-protocol.ts'
import type { OwnThreadPort } from './journal-client.ts'
import type { StoreStatus } from './store-status.ts'

/**
 * Writes a run on the thread that opened it. With one rollout at a time nobody shares a commit, and the way to the writer's
 * thread and back takes more CPU than it saves: see docs/decisions/0034-commits-of-a-lone-rollout.md.
 */
export class InlineWriter extends Resource {
  readonly #figures = new WriterFigures()
  readonly #commits: BatchCommits

  constructor(folder: string) {
    super()
    this.#commits = BatchCommits.open(folder, this.#figures)
  }

  get lastFrame(): number {
    return this.#commits.lastFrame
  }

  /** There is no loop of its own that could be late. */
  lag(): LoopLagWindow {
    return this.#figures.lag()
  }

  status(): StoreStatus {
    return this.#figures.status()
  }

  /** A port for the one `JournalClient`, on this thread. */
  connect(): OwnThreadPort {
    this.throwIfClosed()
    return new InlinePort(this.#commits)
  }

  async retryFailed(failed: RetryFailed): Promise<number> {
    this.throwIfClosed()
    const count = this.#commits.retryFailed(failed)
    if (typeof count !== 'number') throw MillraceError.fromWire(count)
    return count
  }

  protected onClose(): void {
    this.#commits.close()
  }
}

/** Commits a batch as it is sent, and answers as soon as the sender has returned. */
class InlinePort implements OwnThreadPort {
  readonly #commits: BatchCommits
  #onAnswer: ((answer: WireError | null) => void) | undefined

  constructor(commits: BatchCommits) {
    this.#commits = commits
  }

  commit(entries: readonly QueuedEntry[]): void {
    const answer = this.#commits.commit(() => [entries])
    queueMicrotask(() => this.#onAnswer?.(answer))
  }

  on(event: 'message' | 'close', listener: (answer: WireError | null) => void): void {
    if (event === 'message') this.#onAnswer = listener
  }

  off(event: 'message' | 'close'): void {
    if (event === 'message') this.#onAnswer = undefined
  }

  close(): void {
    this.#onAnswer = undefined
  }
}
