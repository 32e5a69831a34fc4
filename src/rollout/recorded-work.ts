import type { WireError } from '../errors/index.ts'
import type { Json, MessageNode } from '../schema/index.ts'
import type { KeptChildren } from './kept-children.ts'
import type { RecordedVerdict } from './replay-verdicts.ts'

/** What earlier sittings recorded of an attempt that goes on. A plain value that goes with the job. */
export interface RecordedWork {
  /** By rollout id: the rollout's own nodes and its children's. */
  readonly nodes: Readonly<Record<string, readonly MessageNode[]>>
  /** By rollout id: the errors that ended the agents of the rollout and its children. An agent that ended by itself has none. */
  readonly ends: Readonly<Record<string, WireError>>
  /** What the rollout's children had come to. */
  readonly children: KeptChildren
  /** By rollout id, what each verdict of a judge cost: a judge that is asked again is paid again. */
  readonly judgeCalls: Readonly<Record<string, readonly PaidVerdict[]>>
  /** How many answers of tool servers the environment's own code had, if any: it asks for them again. */
  readonly serverCalls?: number
  /** The rollout's metrics and notes, if it only lacks its score: not all the code that reported them runs again. */
  readonly reported?: { readonly metrics: Record<string, number>; readonly notes: Record<string, Json> }
}

/** What a verdict had cost, whatever it said. */
export type PaidVerdict = Pick<RecordedVerdict, 'model' | 'usage' | 'cost'>
