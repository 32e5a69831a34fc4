import type { LimitChange } from '../../inference/index.ts'
import { messageJson } from '../../apis/index.ts'
import type { RolloutRecord } from '../../schema/index.ts'
import type { AttemptEnd, AttemptStart, EventEntry, Journal, RolloutEnd } from '../../store/index.ts'

/** When work began. Timestamps come from the wall clock; durations do not, because somebody may set that clock meanwhile. */
export class StartTime {
  readonly at = Date.now()
  readonly #startMs = performance.now()

  get elapsedMs(): number {
    return Math.round(performance.now() - this.#startMs)
  }
}

type Attempt = Pick<RolloutRecord, 'id' | 'attempt'>

/** A rollout that ended but is not settled: its group may still change its reward. */
export interface HeldRollout {
  readonly record: RolloutRecord
  readonly leaf: number | null
}

export function attemptStart(
  { id, attempt, sample, task }: Attempt & { readonly sample: number; readonly task: { readonly index: number } },
  at: number,
  parent: string | null,
): AttemptStart {
  return { kind: 'attempt-start', rollout: id, attempt, parent, task: task.index, sample, at }
}

export function rolloutEnd(ended: HeldRollout): RolloutEnd {
  const { sample, reward, task, messages } = ended.record
  const result = { task: task.index, sample, reward, messages: messages.map(messageJson) }
  return { kind: 'rollout-end', ...endOf(ended), ...result }
}

/** Of an attempt that does not count, or waits for its group. */
export function attemptEnd(ended: HeldRollout, isHeld: boolean): AttemptEnd {
  return { kind: 'attempt-end', ...endOf(ended), isHeld }
}

function endOf({ record, leaf }: HeldRollout): Omit<AttemptEnd, 'kind' | 'isHeld'> {
  const { id: rollout, attempt, outcome } = record
  // The journal keeps the messages once. JSON leaves out what is undefined.
  const head = JSON.stringify({ ...record, messages: undefined })
  return { rollout, attempt, at: Date.now(), outcome, record: head, leaf }
}

export function attemptEvent({ id: rollout, attempt }: Attempt, name: string, data: object): EventEntry {
  return { kind: 'event', rollout, attempt, name, at: Date.now(), data: JSON.stringify(data) }
}

export function runEvent(name: string, data: object): EventEntry {
  return { kind: 'event', rollout: null, attempt: 0, name, at: Date.now(), data: JSON.stringify(data) }
}

/** The messages that an attempt began with, where they came with its request. */
export const openingEvent = 'attempt-opening'

export const resumedEvent = 'attempt-resumed'

/** An attempt, or a child of it, goes on where an earlier launch was cut off: it asks judges and tool servers again. */
export function attemptResumed(attempt: Attempt): EventEntry {
  return attemptEvent(attempt, resumedEvent, {})
}

export function attemptAbandoned(attempt: Attempt, why: string): EventEntry {
  return attemptEvent(attempt, 'attempt-abandoned', { why })
}

/** Keeps with the run how much could be asked of a model, and when that changed. */
export function recordLimitChange(journal: Pick<Journal, 'append'>, change: LimitChange): void {
  journal.append({ ...runEvent('limit-change', change), at: change.at })
}
