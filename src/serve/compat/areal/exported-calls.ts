import type { Caller } from '../../../gateway/index.ts'
import { commonNumbers } from '../../../kit/index.ts'
import { type Row, rowsOf } from '../../../rows/index.ts'
import type { Message } from '../../../schema/index.ts'
import type { RunReader, StoredSession } from '../../../store/index.ts'
import type { Trajectory } from './trajectories.ts'

type InteractionRow = Extract<Row, { readonly kind: 'interaction' }>

/** A reply of a trajectory, as it is exported. */
export interface ExportedCall {
  readonly node: number
  readonly parent: number | null
  /** The messages of the request. */
  readonly request: readonly Message[]
  readonly reply: Message
  /** Its reward, and the discounted rewards of all replies after it in its trajectory. */
  readonly reward: number
  readonly tokens: CallTokens | undefined
}

/** The prompt and the reply of a call. Of several turns in one sequence, more than the reply is sampled. */
export interface CallTokens {
  readonly ids: Int32Array
  readonly sampled: readonly SampledSpan[]
}

interface SampledSpan {
  readonly from: number
  readonly logprobs: Float32Array
  readonly versions: readonly { readonly version: string | null; readonly count: number }[]
}

interface TrajectoryToExport {
  readonly owner: Caller
  readonly session: StoredSession
  readonly trajectory: Trajectory
  readonly discount: number
}

/** The complete replies of a trajectory in the order in which they were recorded. */
export async function exportedCalls(
  reader: RunReader,
  { owner, session, trajectory, discount }: TrajectoryToExport,
): Promise<ExportedCall[]> {
  const rows: InteractionRow[] = []
  const messages = new Map<number, readonly Message[]>()
  for await (const row of rowsOf(reader, { session: session.id, tenant: owner.tenant, rows: 'interactions' })) {
    if (row.kind !== 'interaction') continue
    // Earlier trajectories are read as well: a conversation may go on from them.
    const before = row.parentNode === null ? [] : (messages.get(row.parentNode) ?? [])
    messages.set(row.node, [...before, ...row.messages])
    if (row.trains && row.node > trajectory.after && row.node <= trajectory.end) rows.push(row)
  }
  const rewards = discountedRewards(rows, discount)
  return rows.map((row, index) => {
    const conversation = messages.get(row.node) ?? row.messages
    return {
      node: row.node,
      parent: row.parentNode,
      request: conversation.slice(0, -1),
      reply: conversation.at(-1) ?? { role: 'assistant', content: null },
      reward: rewards[index] ?? 0,
      tokens: tokensOf(row),
    }
  })
}

/** AReaL's rule: each reply gets what those after it got, whether or not its conversation led to them. */
function discountedRewards(rows: readonly InteractionRow[], discount: number): number[] {
  const rewards: number[] = []
  let later = 0
  for (const { reward } of rows.toReversed()) {
    later = later * discount + (reward ?? 0)
    rewards.push(later)
  }
  return rewards.toReversed()
}

function tokensOf({ promptIds, ids, logprobs, versions }: InteractionRow): CallTokens | undefined {
  if (promptIds === null || ids === null || logprobs === null || versions === null) return undefined
  const all = new Int32Array(promptIds.length + ids.length)
  all.set(promptIds)
  all.set(ids, promptIds.length)
  return { ids: all, sampled: [{ from: promptIds.length, logprobs, versions }] }
}

/** A sequence of a trajectory, and its reward. */
export interface ExportedSequence {
  readonly tokens: CallTokens
  readonly reward: number
}

/** A sequence for each reply; undefined if a reply came without tokens. */
export function individualSequences(calls: readonly ExportedCall[]): ExportedSequence[] | undefined {
  const sequences: ExportedSequence[] = []
  for (const { tokens, reward } of calls) if (tokens) sequences.push({ tokens, reward })
  return sequences.length === calls.length ? sequences : undefined
}

/**
 * A sequence for each branch: a prompt that begins with all tokens of the turn before it continues that turn's sequence. If it does
 * not, both are sequences of their own. A token is sampled in one of them only.
 */
export function branchSequences(calls: readonly ExportedCall[]): ExportedSequence[] | undefined {
  const ends = new Map<number, ExportedSequence>()
  const last = new Map<number, CallTokens>()
  for (const { node, parent, tokens, reward } of calls) {
    if (!tokens) return undefined
    const before = parent === null ? undefined : last.get(parent)
    const isContinued = before && commonNumbers(before.ids, tokens.ids) === before.ids.length
    const earlier = isContinued && parent !== null ? ends.get(parent) : undefined
    if (earlier && parent !== null) ends.delete(parent)
    const sampled = [...(earlier?.tokens.sampled ?? []), ...tokens.sampled]
    last.set(node, tokens)
    ends.set(node, { tokens: { ids: tokens.ids, sampled }, reward })
  }
  return [...ends.values()]
}
