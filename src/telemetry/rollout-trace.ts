import { hash } from 'node:crypto'
import type { RolloutJob } from '../rollout/index.ts'

/** The trace of one attempt: known to whoever knows its ids, so that logs and people find it without asking anybody. */
export function traceIdOf(run: string, rollout: string, attempt: number): string {
  return hash('sha256', `${run}\n${rollout}\n${attempt}`, 'hex').slice(0, 32)
}

/**
 * What one attempt, or one child, is traced as: the ids of its span and of the spans below it. It travels with the
 * rollout, so nothing needs to be looked up or forgotten.
 */
export class RolloutTrace {
  /** Of the recorder it belongs to: another one leaves it alone. */
  readonly owner: object
  readonly traceId: string
  readonly spanId: string
  readonly parentSpanId: string | undefined
  readonly job: RolloutJob
  readonly startedAt = performance.now()
  /** Fixed for the attempt, so that its spans cannot overtake each other when the wall clock is corrected. */
  readonly #epochMs = Date.now() - this.startedAt
  readonly #prefix: string
  #lastId: number

  constructor(owner: object, ids: { run: string; id: string; job: RolloutJob; parent: RolloutTrace | undefined }) {
    const { run, id, job, parent } = ids
    this.owner = owner
    this.job = job
    this.traceId = parent?.traceId ?? traceIdOf(run, job.id, job.attempt)
    this.parentSpanId = parent?.spanId
    // An earlier sitting may have sent spans of this very attempt: the same trace, but other spans.
    const sitting = job.recorded ? String(Date.now()) : ''
    const digest = hash('sha256', `${this.traceId}\n${id}\n${sitting}`, 'hex')
    this.spanId = digest.slice(0, 16)
    this.#prefix = digest.slice(16, 24)
    this.#lastId = Number.parseInt(digest.slice(24, 32), 16)
  }

  /** An id for a span below this one. */
  nextSpanId(): string {
    this.#lastId = (this.#lastId + 1) >>> 0
    return this.#prefix + this.#lastId.toString(16).padStart(8, '0')
  }

  /** A time of `performance.now()` in microseconds since 1970. */
  epochMicros(at: number): number {
    return Math.round((this.#epochMs + at) * 1000)
  }
}
