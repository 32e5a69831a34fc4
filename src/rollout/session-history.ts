import type { WireError } from '../errors/index.ts'
import type { Tape } from '../inference/index.ts'
import type { MessageNode } from '../schema/index.ts'
import type { RolloutJob } from './job.ts'
import type { PaidVerdict } from './recorded-work.ts'
import { tapeOf } from './replay-cassette.ts'

/** What is recorded of one session of a rollout, its own or a child's, before the session begins. */
export interface SessionHistory {
  /** The session's messages, from an earlier sitting of the attempt. */
  readonly nodes: readonly MessageNode[]
  /** The error that ended the agent there; undefined if the agent ended by itself. */
  readonly end?: WireError | undefined
  /** What the session hears after its messages: its recorded end, or what another rollout heard. */
  readonly tape?: Tape | undefined
  /** The costs of recorded verdicts whose judges are, or were, asked again. */
  readonly paid: readonly PaidVerdict[]
  /** How many verdicts earlier sittings had left the session. */
  readonly verdicts?: number | undefined
}

/** What is recorded of most sessions, which run for the first time. */
const nothing: SessionHistory = { nodes: [], paid: [] }

export function sessionHistory({ id: rollout, recorded, cassette }: RolloutJob, id: string): SessionHistory {
  if (!recorded && !cassette) return nothing
  const nodes = recorded?.nodes[id] ?? []
  const end = recorded?.ends[id]
  const tape = end ? { nodes, end } : tapeOf(cassette, rollout, id)
  const verdicts = recorded?.judgeCalls[id]
  return { nodes, end, tape, paid: verdicts ?? cassette?.superseded?.[id] ?? [], verdicts: verdicts?.length }
}
