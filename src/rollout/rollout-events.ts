import { EventChannel } from '../kit/index.ts'
import type { RolloutRecord } from '../schema/index.ts'
import type { RolloutJob } from './job.ts'

/** One attempt of a rollout, or of a child, that starts where it runs. */
export interface RolloutStartEvent {
  readonly kind: 'start'
  readonly id: string
  readonly job: RolloutJob
  /** Of the rollout that a child belongs to. */
  readonly parent: object | undefined
  /**
   * A listener that traces the attempt may set it. It is carried along to every model call, tool call and child, and to
   * the end; nobody else looks into it.
   */
  trace?: object
}

/** It came to a result. One that did not repeat its journal has none: it starts over as a new attempt. */
export interface RolloutEndEvent {
  readonly kind: 'end'
  readonly record: Omit<RolloutRecord, 'messages'>
  readonly isChild: boolean
  readonly trace: object | undefined
}

export const rolloutEvents = new EventChannel<RolloutStartEvent | RolloutEndEvent>('millrace:rollout')

/** Announces a start; what it is to be traced as, if somebody listens. */
export function traceOf(job: RolloutJob, id = job.id, parent?: object): object | undefined {
  if (!rolloutEvents.hasSubscribers) return undefined
  const start: RolloutStartEvent = { kind: 'start', id, job, parent }
  rolloutEvents.publish(start)
  return start.trace
}
