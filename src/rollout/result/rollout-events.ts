import { EventChannel } from '../../kit/index.ts'
import type { RolloutRecord } from '../../schema/index.ts'
import type { RolloutJob } from '../schedule/executor.ts'

/** One attempt of a rollout, or of a child, starts where it runs. */
export interface RolloutStartEvent {
  readonly kind: 'start'
  readonly id: string
  readonly job: RolloutJob
  /** The name of its run, where one process has several. */
  readonly run: string | undefined
  readonly parent: object | undefined
  /** A listener may set this. It is carried along to every model call, tool call and child, and to the end. */
  trace?: object
}

/** An attempt has a result. An attempt that did not repeat its journal has none: it starts over as a new attempt. */
export interface RolloutEndEvent {
  readonly kind: 'end'
  readonly record: Omit<RolloutRecord, 'messages'>
  readonly isChild: boolean
  readonly trace: object | undefined
}

export const rolloutEvents = new EventChannel<RolloutStartEvent | RolloutEndEvent>('millrace:rollout')

/** Announces a start; returns the trace that a listener set, if any. */
export function traceOf(
  job: RolloutJob,
  run: string | undefined,
  { id = job.id, parent }: { readonly id?: string; readonly parent?: object | undefined } = {},
): object | undefined {
  if (!rolloutEvents.hasSubscribers) return undefined
  const start: RolloutStartEvent = { kind: 'start', id, job, run, parent }
  rolloutEvents.publish(start)
  return start.trace
}
