import type { MessagePort } from 'node:worker_threads'
import { MillraceError, type WireError } from '../errors/index.ts'
import { Resource, RingQueue } from '../kit/index.ts'
import { encodeBatch, entryBytes } from './_batch-codec.ts'
import type { Journal } from './journal.ts'
import type { JournalEntry } from './journal-entry.ts'

/**
 * How much may wait for the disk. `append` cannot refuse, so nothing is dropped at these limits: whoever admits new
 * rollouts stops while `pressure` is 1 or more, and those that run wait in `durable` before they produce more.
 */
export const journalLimits = {
  maxQueuedEntries: 50_000,
  maxQueuedBytes: 64 * 1024 * 1024,
  /** One message to the writer, and so one transaction, is no larger; a single entry may be. */
  maxBatchEntries: 4_096,
  maxBatchBytes: 16 * 1024 * 1024,
} as const

/** How long an entry that nobody waits for may stay behind, so that it shares the commit of one that somebody does. */
const maxIdleMs = 20

/**
 * How long a batch gathers while others are being committed. Measured with 2,048 rollouts against a backend that takes a
 * second: see docs/performance.md.
 */
const crowdMs = 5

/** Entries that go to the writer in one message, and the promise of those who wait for them. */
class Group {
  readonly entries: JournalEntry[] = []
  bytes = 0
  waiter: PromiseWithResolvers<void> | undefined
}

/**
 * The journal as one thread sees it: a port to the writer. At most one batch is under way; what is appended meanwhile
 * becomes the next one, so that batches grow with the load and the cost of a commit is shared by all who wait for it.
 */
export class JournalClient extends Resource implements Journal {
  readonly #port: MessagePort
  readonly #failure = new AbortController()
  readonly #queued = new RingQueue<Group>()
  #tail: Group | undefined
  #sent: Group | undefined
  /** When the next batch goes: soon for somebody who waits, a little later in a crowd, some time if nobody waits. */
  #departure: 'none' | 'idle' | 'crowd' | 'now' = 'none'
  #immediate: NodeJS.Immediate | undefined
  #timer: NodeJS.Timeout | undefined
  #entries = 0
  #bytes = 0

  constructor(port: MessagePort) {
    super()
    this.#port = port
    port.on('message', this.#onAnswer)
    port.on('close', this.#onPortClose)
  }

  /** Aborts once, with the error, when the store can take no more. */
  get failure(): AbortSignal {
    return this.#failure.signal
  }

  /** What waits for the disk, as a share of what may: at 1 nothing new should be started. */
  get pressure(): number {
    return Math.max(this.#entries / journalLimits.maxQueuedEntries, this.#bytes / journalLimits.maxQueuedBytes)
  }

  append(entry: JournalEntry): void {
    this.appendAll([entry])
  }

  appendAll(entries: readonly JournalEntry[]): void {
    if (this.isClosed || this.failure.aborted) return
    // One batch is one transaction, so what belongs together is never split, though the batch grows past its size.
    let tail = this.#tail
    if (!tail || tail.entries.length >= journalLimits.maxBatchEntries || tail.bytes >= journalLimits.maxBatchBytes) {
      tail = new Group()
      this.#tail = tail
      this.#queued.push(tail)
    }
    for (const entry of entries) {
      const bytes = entryBytes(entry)
      tail.entries.push(entry)
      tail.bytes += bytes
      this.#bytes += bytes
    }
    this.#entries += entries.length
    if (!this.#sent && this.#departure === 'none') this.#depart('idle')
  }

  durable(): Promise<void> | undefined {
    const pending = this.durableSoon()
    if (pending) this.#hurry()
    return pending
  }

  durableSoon(): Promise<void> | undefined {
    if (this.failure.aborted) return rejected(this.failure.reason)
    if (this.isClosed) return rejected(this.closedSignal.reason)
    return this.#pending()
  }

  /** Those who wait for the same batch share one promise. */
  #pending(): Promise<void> | undefined {
    const group = this.#tail ?? this.#sent
    if (!group) return undefined
    if (!group.waiter) {
      group.waiter = Promise.withResolvers()
      // A failure also shows in `failure`; one whose waiter has gone must not end the process.
      group.waiter.promise.catch(ignore)
    }
    return group.waiter.promise
  }

  /** Somebody waits. In a crowd they wait for each other. */
  #hurry(): void {
    if (!this.#sent && this.#tail && this.#departure !== 'crowd') this.#depart('now')
  }

  #depart(departure: 'idle' | 'crowd' | 'now'): void {
    if (departure === this.#departure) return
    this.#cancelDeparture()
    this.#departure = departure
    // Everything this turn of the event loop appends goes together.
    if (departure === 'now') this.#immediate = setImmediate(this.#send)
    else this.#timer = setTimeout(this.#send, departure === 'idle' ? maxIdleMs : crowdMs)
  }

  #cancelDeparture(): void {
    clearTimeout(this.#timer)
    clearImmediate(this.#immediate)
    this.#departure = 'none'
  }

  readonly #send = (): void => {
    this.#cancelDeparture()
    const group = this.#queued.shift()
    if (!group) return
    if (group === this.#tail) this.#tail = undefined
    this.#sent = group
    const batch = encodeBatch(group.entries)
    this.#port.postMessage(batch, batch.tokens ? [batch.tokens] : [])
  }

  readonly #onAnswer = (failure: WireError | null): void => {
    if (failure) {
      this.#fail(MillraceError.fromWire(failure))
      return
    }
    const group = this.#sent
    if (!group) return
    this.#sent = undefined
    this.#entries -= group.entries.length
    this.#bytes -= group.bytes
    // Something came in meanwhile, so there is a crowd: a moment's patience makes one commit of several. A full batch
    // has nothing to wait for.
    if (this.#queued.size > 1) this.#send()
    else if (this.#tail) this.#depart('crowd')
    group.waiter?.resolve()
  }

  readonly #onPortClose = (): void => {
    this.#fail(
      new MillraceError('store_failed', 'the thread that writes the journal has ended; run again with --resume'),
    )
  }

  #fail(error: MillraceError): void {
    if (this.failure.aborted) return
    this.#cancelDeparture()
    const lost = [this.#sent]
    for (let group = this.#queued.shift(); group; group = this.#queued.shift()) lost.push(group)
    this.#sent = undefined
    this.#tail = undefined
    this.#entries = 0
    this.#bytes = 0
    this.#failure.abort(error)
    for (const group of lost) group?.waiter?.reject(error)
  }

  /** Waits for what was appended. A failure is not repeated here: `failure` and `durable` have said it. */
  protected async onClose(): Promise<void> {
    if (!this.failure.aborted) {
      this.#hurry()
      await this.#pending()?.catch(ignore)
    }
    this.#port.off('message', this.#onAnswer)
    this.#port.off('close', this.#onPortClose)
    this.#port.close()
  }
}

function ignore(): void {}

function rejected(reason: unknown): Promise<void> {
  const promise = Promise.reject(reason)
  promise.catch(ignore)
  return promise
}
