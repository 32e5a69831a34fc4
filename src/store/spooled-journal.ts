import { Resource } from '../kit/index.ts'
import { entryBytes } from './_batch-codec.ts'
import { encodeFrame } from './_frame-codec.ts'
import { SpoolFile, type SpooledFrame } from './_spool-file.ts'
import type { Journal } from './journal.ts'
import { type JournalClient, maxIdleMs, shareOfLimits } from './journal-client.ts'
import type { JournalEntry } from './journal-entry.ts'

/** The largest frame. More bytes in one turn are not copied on the event loop: they go to the database directly. */
const maxFrameBytes = 4 * 1024 * 1024

/**
 * A journal for callers that mostly wait for `written` and seldom for `durable`. Entries are written to a spool file, which takes
 * some microseconds where a commit and the way to the writer's thread and back take hundreds, and reach the database a little
 * later, many in one commit. If the process is killed in between, the next opening of the run finds them in the file.
 *
 * The file is only a shortcut: entries that do not fit, or cannot be written, go to the database at once.
 */
export class SpooledJournal extends Resource implements Journal {
  readonly #journal: JournalClient
  readonly #spool: SpoolFile
  /** The number of the last frame. */
  #number: number
  /** Entries that are neither in the spool nor handed to the journal. */
  #entries: JournalEntry[] = []
  #bytes = 0
  #waiting: PromiseWithResolvers<void> | undefined
  #immediate: NodeJS.Immediate | undefined
  #idleTimer: NodeJS.Timeout | undefined
  /** Pending until all entries handed over are in the database. Frames are read back in order, so none is written before that. */
  #pause: Promise<void> | undefined

  constructor(journal: JournalClient, { folder, lastFrame }: { folder: string; lastFrame: number }) {
    super()
    this.#journal = journal
    this.#spool = new SpoolFile(folder)
    this.#number = lastFrame
  }

  get failure(): AbortSignal {
    return this.#journal.failure
  }

  /** Entries held back during a pause count, too. */
  get pressure(): number {
    return this.#journal.pressure + shareOfLimits(this.#entries.length, this.#bytes)
  }

  append(entry: JournalEntry): void {
    if (this.isClosed || this.failure.aborted) return
    this.#entries.push(entry)
    this.#bytes += entryBytes(entry)
    this.#idleTimer ??= setTimeout(this.#onIdle, maxIdleMs)
  }

  /** One frame becomes one transaction. */
  appendAll(entries: readonly JournalEntry[]): void {
    for (const entry of entries) this.append(entry)
  }

  durable(): Promise<void> | undefined {
    return this.#handedOver(() => this.#journal.durable())
  }

  /** The spool is not synced, so that entries are on disk once they are in the database. */
  synced(): Promise<void> | undefined {
    return this.durable()
  }

  syncedSoon(): Promise<void> | undefined {
    return this.#handedOver(() => this.#journal.syncedSoon())
  }

  written(): Promise<void> | undefined {
    if (this.isClosed || this.failure.aborted) return this.durable()
    if (this.#entries.length === 0) return this.#pause
    // All entries appended in this turn of the event loop go together.
    this.#immediate ??= setImmediate(this.#write)
    this.#waiting ??= waiters()
    return this.#waiting.promise
  }

  #handedOver(wait: () => Promise<void> | undefined): Promise<void> | undefined {
    this.#write()
    if (!this.#pause) return wait()
    const pending = this.#pause.then(wait)
    pending.catch(ignore)
    return pending
  }

  readonly #onIdle = (): void => {
    this.#idleTimer = undefined
    this.#write()
  }

  readonly #write = (): void => {
    clearImmediate(this.#immediate)
    this.#immediate = undefined
    if (this.#pause || this.#entries.length === 0) return
    const bytes = this.#bytes > maxFrameBytes ? undefined : encodeFrame(this.#entries)
    if (bytes && !this.#spool.hasRoomFor(bytes.length)) {
      this.#pauseUntilDurable()
      return
    }
    const frame = bytes && { number: this.#number + 1, bytes }
    if (!frame || !this.#trySpool(frame)) {
      this.#passOn()
      return
    }
    this.#number = frame.number
    this.#journal.append({ kind: 'frame', ...frame })
    this.#take()?.resolve()
  }

  #trySpool(frame: SpooledFrame): boolean {
    try {
      this.#spool.append(frame)
      return true
    } catch {
      // If the disk is full, the write to the database fails with a better message.
      return false
    }
  }

  #passOn(): void {
    this.#journal.appendAll(this.#entries)
    this.#pauseUntilDurable(this.#take())
  }

  #pauseUntilDurable(passedOn?: PromiseWithResolvers<void>): void {
    this.#pause = Promise.resolve(this.#journal.durable()).then(
      () => {
        this.#pause = undefined
        this.#spool.rewind()
        passedOn?.resolve()
        this.#write()
      },
      (reason: unknown) => {
        passedOn?.reject(reason)
        this.#take()?.reject(reason)
        throw reason
      },
    )
    this.#pause.catch(ignore)
  }

  #take(): PromiseWithResolvers<void> | undefined {
    const waiting = this.#waiting
    this.#waiting = undefined
    this.#entries = []
    this.#bytes = 0
    return waiting
  }

  /** Entries that were spooled and could not be committed stay in the file, where the next opening of the run finds them. */
  protected async onClose(): Promise<void> {
    clearTimeout(this.#idleTimer)
    await this.durable()?.catch(ignore)
    await this.#journal.close()
    if (this.failure.aborted) this.#spool.close()
    else this.#spool.remove()
  }
}

/** A failure also shows in `failure`; the rejection must not end the process if the caller has gone. */
function waiters(): PromiseWithResolvers<void> {
  const waiting = Promise.withResolvers<void>()
  waiting.promise.catch(ignore)
  return waiting
}

function ignore(): void {}
