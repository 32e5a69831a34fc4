import type { WireError } from '../errors/index.ts'
import type { QueuedEntry } from './_batch-codec.ts'
import { JournalWriter } from './_journal-writer.ts'
import { RunPresence } from './run-presence.ts'
import { storeFailure } from './_store-failure.ts'
import type { WriterFigures } from './_writer-figures.ts'
import type { RetryFailed } from './_writer-protocol.ts'

/** Commits batches of entries to a run. After the first failure nothing more is written. */
export class BatchCommits {
  readonly #folder: string
  readonly #figures: WriterFigures
  readonly #writer: JournalWriter
  readonly #presence: RunPresence
  #failure: WireError | undefined

  private constructor(folder: string, figures: WriterFigures, parts: { writer: JournalWriter; presence: RunPresence }) {
    this.#folder = folder
    this.#figures = figures
    this.#writer = parts.writer
    this.#presence = parts.presence
  }

  /** Throws what keeps the run from being written to. */
  static open(folder: string, figures: WriterFigures): BatchCommits {
    try {
      using opened = new DisposableStack()
      const writer = opened.adopt(JournalWriter.open(folder), (each) => each.close())
      const commits = new BatchCommits(folder, figures, { writer, presence: new RunPresence(folder) })
      // From here on they are closed with the commits.
      opened.move()
      return commits
    } catch (error) {
      throw storeFailure(error, folder)
    }
  }

  /** The number of the last frame of the spool that is in the database. */
  get lastFrame(): number {
    return this.#writer.lastFrame
  }

  /**
   * Commits batches in one transaction. They are taken once it has begun, because that may have to wait for others who use the
   * database. Once it has returned null they are on disk; otherwise it returns why not. `lastFrame` is the last frame of the
   * spool whose entries are among them as they are.
   */
  commit(takeBatches: () => readonly (readonly QueuedEntry[])[], lastFrame?: number): WireError | null {
    const failure = this.failureNow()
    if (failure) return failure
    const startedAt = performance.now()
    try {
      this.#writer.begin()
      let count = 0
      for (const batch of takeBatches()) for (const entry of batch) count += this.#writer.take(entry)
      if (lastFrame !== undefined) this.#writer.noteFrame(lastFrame)
      this.#writer.commit()
      this.#figures.committed(count, performance.now() - startedAt)
      return null
    } catch (error) {
      return this.#fail(error)
    }
  }

  /** Why nothing more is written, if so. Looks whether the run is still there, too. */
  failureNow(): WireError | undefined {
    const absence = this.#failure ? undefined : this.#presence.absence()
    if (absence) this.#fail(absence)
    return this.#failure
  }

  /** Returns how many results were taken back, or why none could be. */
  retryFailed(failed: RetryFailed): number | WireError {
    const failure = this.failureNow()
    if (failure) return failure
    try {
      return this.#writer.retryFailed(failed, Date.now())
    } catch (error) {
      return this.#fail(error)
    }
  }

  /** Brings `rollouts.jsonl` up to date, checkpoints, and closes the database. */
  close(): void {
    if (!this.#presence.absence()) this.#writer.catchUpLines()
    this.#writer.close()
    this.#presence[Symbol.dispose]()
  }

  #fail(error: unknown): WireError {
    this.#writer.rollback()
    this.#failure = storeFailure(error, this.#folder).toWire()
    return this.#failure
  }
}
