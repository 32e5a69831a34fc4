import type { RolloutRecord } from '../schema/index.ts'
import { rolloutCount, rolloutIds, type KnownRequest } from './known-request.ts'
import { ResultReader } from './result-reader.ts'

/** A request some of whose rollouts have not ended, and those who read its results. */
export class ActiveRequest {
  readonly request: KnownRequest
  /** Resolves once it is on disk. */
  readonly accepted: Promise<void>
  readonly #readers = new Set<ResultReader>()
  /** Those who asked for it: while one of them reads, it is wanted. */
  #owners = 0
  readonly #isUnsettled: (rollout: string) => boolean
  readonly #onAbandoned: (request: KnownRequest) => void
  #unsettled: number

  constructor(options: {
    readonly request: KnownRequest
    readonly accepted: Promise<void>
    readonly unsettled: number
    readonly isUnsettled: (rollout: string) => boolean
    /** The last of its owners has left, and it is not detached. */
    readonly onAbandoned: (request: KnownRequest) => void
  }) {
    this.request = options.request
    this.accepted = options.accepted
    this.#unsettled = options.unsettled
    this.#isUnsettled = options.isUnsettled
    this.#onAbandoned = options.onAbandoned
  }

  get unsettled(): number {
    return this.#unsettled
  }

  /** Another reader of the same results: those that have ended first, then the others as they end. */
  read(role: 'owner' | 'onlooker'): ResultReader {
    const ended = [...rolloutIds(this.request)].filter((id) => !this.#isUnsettled(id))
    if (role === 'owner') this.#owners += 1
    const reader = new ResultReader(rolloutCount(this.request), ended, (gone) => {
      this.#readers.delete(gone)
      if (role === 'owner') this.#onOwnerGone()
    })
    this.#readers.add(reader)
    return reader
  }

  #onOwnerGone(): void {
    this.#owners -= 1
    if (this.#owners === 0 && this.#unsettled > 0 && !this.request.isDetached) this.#onAbandoned(this.request)
  }

  /** True if it was the last one. */
  settle(record: RolloutRecord): boolean {
    this.#unsettled -= 1
    for (const reader of this.#readers) reader.push({ id: record.id, record })
    return this.#unsettled === 0
  }

  fail(error: unknown): void {
    for (const reader of this.#readers) reader.fail(error)
  }
}
