import { RingQueue, timerMs } from '../../kit/index.ts'
import type { RolloutRecord } from '../../schema/index.ts'
import { countOutcome, type KnownRequest, rolloutCount, rolloutIds } from './known-request.ts'

export interface ActiveRequestOptions {
  readonly request: KnownRequest
  readonly accepted: Promise<void>
  readonly unsettled: number
  /** How long it goes on without an owner, so that one whose connection broke can come back. */
  readonly graceMs: number
  readonly isUnsettled: (rollout: string) => boolean
  /** The last of its owners has left for good, and it is not detached. */
  readonly onAbandoned: (request: KnownRequest) => void
}

export class ActiveRequest {
  /** How many of its rollouts run now. `UnsettledRollouts` counts them. */
  running = 0
  readonly #options: ActiveRequestOptions
  readonly #readers = new Set<ResultReader>()
  /** Those who asked for it: while one of them reads, it is wanted. */
  #owners = 0
  #unsettled: number
  #grace: NodeJS.Timeout | undefined

  constructor(options: ActiveRequestOptions) {
    this.#options = options
    this.#unsettled = options.unsettled
  }

  get request(): KnownRequest {
    return this.#options.request
  }

  get accepted(): Promise<void> {
    return this.#options.accepted
  }

  /** Another reader of the same results: those that have ended first, then the others as they end. */
  read(role: 'owner' | 'onlooker'): ResultReader {
    if (role === 'owner') {
      this.#owners += 1
      clearTimeout(this.#grace)
    }
    const reader = new ResultReader(rolloutCount(this.request), this.#ended(), (left, why) => {
      // An owner whom we failed still wants it, and reads it later.
      const isOneLess = this.#readers.delete(left) && role === 'owner' && why === 'gone'
      if (isOneLess) this.#onOwnerGone()
    })
    this.#readers.add(reader)
    return reader
  }

  settle(record: RolloutRecord): boolean {
    this.#unsettled -= 1
    countOutcome(this.request, record.outcome)
    for (const reader of this.#readers) reader.push({ id: record.id, record })
    if (this.#unsettled === 0) clearTimeout(this.#grace)
    return this.#unsettled === 0
  }

  /** No more results will come: nobody's leaving means anything now. */
  fail(error: unknown): void {
    clearTimeout(this.#grace)
    for (const reader of this.#readers) reader.fail(error)
    this.#readers.clear()
  }

  #ended(): string[] {
    // As it is for every new request.
    if (this.#unsettled === rolloutCount(this.request)) return []
    return [...rolloutIds(this.request)].filter((id) => !this.#options.isUnsettled(id))
  }

  #onOwnerGone(): void {
    this.#owners -= 1
    if (this.#owners > 0 || this.#unsettled === 0) return
    const { graceMs } = this.#options
    if (graceMs === 0) this.#abandon()
    else this.#grace = setTimeout(() => this.#abandon(), timerMs(graceMs)).unref()
  }

  #abandon(): void {
    if (!this.request.isDetached) this.#options.onAbandoned(this.request)
  }
}

/** A rollout whose result is durable. `record` is there while it is at hand; otherwise the store has it. */
export interface SettledRollout {
  readonly id: string
  readonly record?: RolloutRecord
}

/** `gone`: whoever wanted the results does not any more. `failed`: it was we who could not hand them over. */
type Leaving = 'gone' | 'failed'

/** Records that a slow reader may hold in memory; of the others it is told the id, and reads them when it gets there. */
const maxRecordsAtHand = 16

/** The results of one request as one reader takes them. Never holds up a rollout: what waits is an id. */
export class ResultReader implements AsyncIterableIterator<SettledRollout, void, void> {
  /** Those that came before they were asked for; most requests have one result, for which somebody waits. */
  #settled: RingQueue<SettledRollout> | undefined
  readonly #onLeft: (reader: ResultReader, why: Leaving) => void
  #due: number
  #waiting: PromiseWithResolvers<IteratorResult<SettledRollout, void>> | undefined
  #state: { readonly kind: 'open' | 'left' } | { readonly kind: 'failed'; readonly error: unknown } = { kind: 'open' }

  constructor(due: number, ended: Iterable<string>, onLeft: (reader: ResultReader, why: Leaving) => void) {
    this.#due = due
    this.#onLeft = onLeft
    for (const id of ended) this.#keep({ id })
  }

  push(settled: SettledRollout): void {
    if (this.#state.kind !== 'open') return
    if (this.#waiting) {
      const { resolve } = this.#waiting
      this.#waiting = undefined
      this.#due -= 1
      resolve({ done: false, value: settled })
      return
    }
    const isAtHand = (this.#settled?.size ?? 0) < maxRecordsAtHand
    this.#keep(isAtHand ? settled : { id: settled.id })
  }

  /** No more will come. What has come is still handed out. */
  fail(error: unknown): void {
    if (this.#state.kind !== 'open') return
    this.#state = { kind: 'failed', error }
    this.#waiting?.reject(error)
    this.#waiting = undefined
  }

  next(): Promise<IteratorResult<SettledRollout, void>> {
    if (this.#state.kind === 'left') return Promise.resolve({ done: true, value: undefined })
    if (this.#due === 0) return this.return()
    const settled = this.#settled?.shift()
    if (settled) {
      this.#due -= 1
      return Promise.resolve({ done: false, value: settled })
    }
    if (this.#state.kind === 'failed') return Promise.reject(this.#state.error)
    this.#waiting = Promise.withResolvers()
    return this.#waiting.promise
  }

  /** Leaves, because nobody wants the rest. Whether that cancels what still runs is for the request to say. */
  return(): Promise<IteratorResult<SettledRollout, void>> {
    this.#leave('gone')
    return Promise.resolve({ done: true, value: undefined })
  }

  /** Leaves, though the rest is still wanted: it can be read again. Does nothing once it was left. */
  release(): void {
    this.#leave('failed')
  }

  [Symbol.asyncIterator](): this {
    return this
  }

  #keep(settled: SettledRollout): void {
    this.#settled ??= new RingQueue()
    this.#settled.push(settled)
  }

  #leave(why: Leaving): void {
    if (this.#state.kind === 'left') return
    this.#state = { kind: 'left' }
    this.#waiting?.resolve({ done: true, value: undefined })
    this.#waiting = undefined
    this.#onLeft(this, why)
  }
}
