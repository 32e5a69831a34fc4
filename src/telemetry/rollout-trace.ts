import { hash } from 'node:crypto'
import type { RolloutJob } from '../rollout/index.ts'

/** The trace id of one attempt. It follows from the attempt's ids, so that logs and people find it without a lookup. */
export function traceIdOf(run: string, rollout: string, attempt: number): string {
  return hash('sha256', `${run}\n${rollout}\n${attempt}`, 'hex').slice(0, 32)
}

/**
 * The trace of one attempt, or one child: the ids of its span and of the spans below it. It travels with the rollout, so nothing
 * needs to be looked up or forgotten.
 */
export class RolloutTrace {
  /** The recorder that made this trace: other recorders ignore it. */
  readonly owner: object
  readonly traceId: string
  readonly spanId: string
  readonly parentSpanId: string | undefined
  readonly job: RolloutJob
  readonly startedAt = performance.now()
  /** When `performance.now()` was 0. Fixed for the attempt, so that its spans keep their order when the wall clock is corrected. */
  readonly epochMs = Date.now() - this.startedAt
  readonly #prefix: string
  #lastId: number

  constructor(owner: object, ids: { run: string; id: string; job: RolloutJob; parent: RolloutTrace | undefined }) {
    const { run, id, job, parent } = ids
    this.owner = owner
    this.job = job
    this.traceId = parent?.traceId ?? traceIdOf(run, job.id, job.attempt)
    this.parentSpanId = parent?.spanId
    // An earlier launch may have sent spans of this attempt: the trace is the same, but the span ids must differ.
    const launch = job.recording?.purpose === 'resume' ? String(Date.now()) : ''
    const digest = hash('sha256', `${this.traceId}\n${id}\n${launch}`, 'hex')
    this.spanId = digest.slice(0, 16)
    this.#prefix = digest.slice(16, 24)
    this.#lastId = Number.parseInt(digest.slice(24, 32), 16)
  }

  /** An id for a span below this one. */
  nextSpanId(): string {
    this.#lastId = (this.#lastId + 1) >>> 0
    return this.#prefix + this.#lastId.toString(16).padStart(8, '0')
  }
}

/** W3C trace context, version 00, sampled: `00-<trace id>-<span id>-01`. */
export function traceparentOf(traceId: string, spanId: string): string {
  return `00-${traceId}-${spanId}-01`
}

/** The span id of a header that `traceparentOf` wrote. */
export function spanIdOf(traceparent: string): string {
  return traceparent.slice(36, 52)
}
