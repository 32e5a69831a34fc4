import { Resource } from '../kit/index.ts'
import { entryBytes } from './_batch-codec.ts'
import { encodeFrame } from './_frame-codec.ts'
import { SpoolFile, type SpooledFrame } from './_spool-file.ts'
import type { Journal } from './journal.ts'
import { type JournalClient, maxIdleMs, shareOfLimits } from './journal-client.ts'
import type { JournalEntry } from './journal-entry.ts'

/** More in one turn is not copied on the event loop: whoever waits for it waits for the database. */
const maxFrameBytes = 4 * 1024 * 1024

/**
 * A journal for one who waits until much is `written` and little is durable. Entries are written into a file of their own, which
 * takes some microseconds where a commit and the way to the writer's thread and back take hundreds, and reach the database
 * a little later, many in one commit. If the process is killed in between, whoever opens the run next finds them there.
 *
 * The file is a shortcut and nothing hangs on it: what does not fit, or cannot be written, goes to the database at once.
 */
export class SpooledJournal extends Resource implements Journal {
  readonly #journal: JournalClient
  readonly #spool: SpoolFile
  /** Of the last frame. */
  #number: number
  /** What is neither written nor with the journal. */
  #entries: JournalEntry[] = []
  #bytes = 0
  #waiting: PromiseWithResolvers<void> | undefined
  #immediate: NodeJS.Immediate | undefined
  #idleTimer: NodeJS.Timeout | undefined
  /** Until all that was handed over is in the database: frames are read back in order, so none is written before that. */
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

  /** What is held back during a pause waits for the disk, too. */
  get pressure(): number {
    return this.#journal.pressure + shareOfLimits(this.#entries.length, this.#bytes)
  }

  append(entry: JournalEntry): void {
    if (this.isClosed || this.failure.aborted) return
    this.#entries.push(entry)
    this.#bytes += entryBytes(entry)
    this.#idleTimer ??= setTimeout(this.#onIdle, maxIdleMs)
  }

  /** One frame is taken in by one transaction. */
  appendAll(entries: readonly JournalEntry[]): void {
    for (const entry of entries) this.append(entry)
  }

  durable(): Promise<void> | undefined {
    return this.#handedOver(() => this.#journal.durable())
  }

  durableSoon(): Promise<void> | undefined {
    return this.#handedOver(() => this.#journal.durableSoon())
  }

  written(): Promise<void> | undefined {
    if (this.isClosed || this.failure.aborted) return this.durable()
    if (this.#entries.length === 0) return this.#pause
    // Everything this turn of the event loop appends goes together.
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
    if (!frame || !this.#isSpooled(frame)) {
      this.#passOn()
      return
    }
    this.#number = frame.number
    this.#journal.append({ kind: 'frame', ...frame })
    this.#take()?.resolve()
  }

  #isSpooled(frame: SpooledFrame): boolean {
    try {
      this.#spool.append(frame)
      return true
    } catch {
      // If the disk is full, the database says so in its own words.
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

  /** What was written and could not be committed stays where the next one who opens the run finds it. */
  protected async onClose(): Promise<void> {
    clearTimeout(this.#idleTimer)
    await this.durable()?.catch(ignore)
    await this.#journal.close()
    if (this.failure.aborted) this.#spool.close()
    else this.#spool.remove()
  }
}

/** A failure also shows in `failure`; one whose waiter has gone must not end the process. */
function waiters(): PromiseWithResolvers<void> {
  const waiting = Promise.withResolvers<void>()
  waiting.promise.catch(ignore)
  return waiting
}

function ignore(): void {}
