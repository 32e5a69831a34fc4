import type { WireError } from '../errors/index.ts'
import type { Json, MessageNode } from '../schema/index.ts'
import type { KeptChildren } from './kept-children.ts'
import type { RecordedVerdict } from './replay-verdicts.ts'

/** What earlier sittings recorded of an attempt that goes on. A plain value that goes with the job. */
export interface RecordedWork {
  /** By rollout id: its own nodes and its children's. */
  readonly nodes: Readonly<Record<string, readonly MessageNode[]>>
  /** By rollout id, what ended its agent and those of its children, if they did not end by themselves. */
  readonly ends: Readonly<Record<string, WireError>>
  /** What its children had come to. */
  readonly children: KeptChildren
  /** What its judges were paid, by rollout id and call: whoever is asked again is paid again. */
  readonly judgeCalls: Readonly<Record<string, readonly PaidVerdict[]>>
  /** How many answers of tool servers its own code had, if any: it asks for them again. */
  readonly serverCalls?: number
  /** What it had come to say of itself, if it only lacks its score: not all that said so runs again. */
  readonly reported?: { readonly metrics: Record<string, number>; readonly notes: Record<string, Json> }
}

/** What a verdict had cost, whatever it was. */
export type PaidVerdict = Pick<RecordedVerdict, 'usage' | 'cost'>
