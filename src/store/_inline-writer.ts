import { MillraceError } from '../errors/index.ts'
import { Resource, type LoopLagWindow } from '../kit/index.ts'
import { BatchCommits } from './_batch-commits.ts'
import { InlinePort } from './_inline-port.ts'
import { WriterFigures } from './_writer-figures.ts'
import type { RetryFailed } from './_writer-protocol.ts'
import type { OwnThreadPort } from './journal-client.ts'
import { presenceCheckMs } from './run-presence.ts'
import type { StoreStatus } from './store-status.ts'

/**
 * Writes a run on the thread that opened it. With one rollout at a time nobody shares a commit, and the way to the writer's
 * thread and back takes more CPU than it saves: see docs/decisions/0034-commits-of-a-lone-rollout.md.
 */
export class InlineWriter extends Resource {
  readonly #folder: string
  readonly #figures = new WriterFigures()
  readonly #commits: BatchCommits
  #presenceTimer: NodeJS.Timeout | undefined

  constructor(folder: string) {
    super()
    this.#folder = folder
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
    const port = new InlinePort(this.#folder, this.#commits)
    this.#presenceTimer ??= setInterval(() => port.tellFailure(), presenceCheckMs).unref()
    return port
  }

  async retryFailed(failed: RetryFailed): Promise<number> {
    this.throwIfClosed()
    const count = this.#commits.retryFailed(failed)
    if (typeof count !== 'number') throw MillraceError.fromWire(count)
    return count
  }

  protected onClose(): void {
    clearInterval(this.#presenceTimer)
    this.#commits.close()
  }
}
