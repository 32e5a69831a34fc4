import { timerMs } from '../kit/index.ts'
import type { RolloutRecord } from '../schema/index.ts'
import { countOutcome, rolloutCount, rolloutIds, type KnownRequest } from './known-request.ts'
import { ResultReader } from './result-reader.ts'

export interface ActiveRequestOptions {
  readonly request: KnownRequest
  /** Resolves once it is on disk. */
  readonly accepted: Promise<void>
  readonly unsettled: number
  /** How long it goes on without an owner, so that one whose connection broke can come back. */
  readonly graceMs: number
  readonly isUnsettled: (rollout: string) => boolean
  /** The last of its owners has left for good, and it is not detached. */
  readonly onAbandoned: (request: KnownRequest) => void
}

/** A request some of whose rollouts have not ended, and those who read its results. */
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

  /** True if it was the last one. */
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
