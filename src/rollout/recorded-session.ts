import type { WireError } from '../errors/index.ts'
import type { Tape } from '../inference/index.ts'
import type { MessageNode } from '../schema/index.ts'
import type { RolloutJob } from './job.ts'
import type { PaidVerdict } from './recorded-work.ts'
import { tapeOf } from './replay-cassette.ts'

/** What is recorded of one session of a rollout, its own or a child's, before it begins. */
export interface RecordedSession {
  /** Its messages, from an earlier sitting of the attempt. */
  readonly nodes: readonly MessageNode[]
  /** What ended its agent there, if that did not end by itself. */
  readonly end?: WireError | undefined
  /** What it hears beyond its messages: how it had ended, if it had, or what another rollout heard. */
  readonly tape?: Tape | undefined
  /** What its judges had been paid that are asked again, or were. */
  readonly paid: readonly PaidVerdict[]
  /** How many verdicts earlier sittings had left it. */
  readonly verdicts?: number | undefined
}

/** Of most, which run for the first time. */
const nothing: RecordedSession = { nodes: [], paid: [] }

export function recordedSession({ id: rollout, recorded, cassette }: RolloutJob, id: string): RecordedSession {
  if (!recorded && !cassette) return nothing
  const nodes = recorded?.nodes[id] ?? []
  const end = recorded?.ends[id]
  const tape = end ? { nodes, end } : tapeOf(cassette, rollout, id)
  const verdicts = recorded?.judgeCalls[id]
  return { nodes, end, tape, paid: verdicts ?? cassette?.superseded?.[id] ?? [], verdicts: verdicts?.length }
}
