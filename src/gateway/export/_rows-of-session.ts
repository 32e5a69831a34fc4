import type { MessageNode } from '../../schema/index.ts'
import type { StoredReward, StoredSession } from '../../store/index.ts'
import { continuedPrompts } from './_rows-continued-prompts.ts'
import { readConversation, type WholeNodes, withTokens } from './_rows-conversation.ts'
import { interactionRows, lostRow } from './_rows-interactions.ts'
import { lostMergedRow, mergedRows } from './_rows-merged.ts'
import type { Row } from './_rows-parts.ts'
import { worthOf } from './_rows-returns.ts'
import { sessionFacts } from './_rows-session.ts'

/** All that the store has of a session. */
export interface SessionToExport {
  readonly session: StoredSession
  /** All nodes, without their tokens. */
  readonly bareNodes: readonly (MessageNode & { readonly lacksTokens: boolean })[]
  /** All nodes with tokens, from the first on with each call: they are read one by one, so that few are held. */
  readonly nodes: () => WholeNodes
  readonly rewards: readonly StoredReward[]
}

export interface RowOptions {
  readonly rows: 'interactions' | 'merged'
  /** The factor by which a later reward counts less per step, from 0 to 1. */
  readonly discount: number
  readonly includeDiscarded: boolean
  readonly skipWithoutTokens: boolean
}

export interface SessionRows {
  /** The rows, made one by one as they are asked for. */
  readonly rows: AsyncIterable<Row>
  /** Complete replies that came without prompt ids, ids or log-probabilities. */
  readonly withoutTokens: number
}

/** The rows of one session; a single `empty` row if there are none. */
export function rowsOfSession(recorded: SessionToExport, options: RowOptions): SessionRows {
  const withoutTokens = recorded.bareNodes.filter(({ lacksTokens, call }) => lacksTokens && call).length
  return { rows: rowsOf(recorded, options), withoutTokens }
}

async function* rowsOf(
  { session, bareNodes, nodes, rewards }: SessionToExport,
  options: RowOptions,
): AsyncGenerator<Row, void, void> {
  const facts = sessionFacts(session)
  const continued = await continuedPrompts(bareNodes, nodes)
  const { interactions, lost } = readConversation(session.id, bareNodes, continued)
  const worth = worthOf(interactions, rewards, options.discount)
  const complete = withTokens(interactions, nodes)
  let isEmpty = true
  for await (const row of options.rows === 'merged'
    ? mergedRows(facts, complete, worth, options)
    : interactionRows(facts, complete, worth)) {
    isEmpty = false
    yield row
  }
  if (isEmpty) {
    const { value: reward = null } = rewards.find(({ node }) => node === null) ?? {}
    yield { kind: 'empty', ...facts, reward, lost: lost.length }
  }
  if (!options.includeDiscarded) return
  for await (const sample of withTokens(lost, nodes)) {
    const row = options.rows === 'merged' ? lostMergedRow(facts, sample) : lostRow(facts, sample)
    if (row) yield row
  }
}
