import type { MessageNode } from '../schema/index.ts'
import type { StoredReward, StoredSession } from '../store/index.ts'
import { type Conversation, readConversation } from './_rows-conversation.ts'
import { interactionRow, lostRow } from './_rows-interactions.ts'
import { lostMergedRow, mergedRows } from './_rows-merged.ts'
import type { Row } from './_rows-parts.ts'
import { unknownWorth, worthOf } from './_rows-returns.ts'
import { sessionFacts, type SessionFacts } from './_rows-session.ts'
import { completeTokens } from './_rows-tokens.ts'

/** Everything the store has of a session. */
export interface RecordedSession {
  readonly session: StoredSession
  readonly nodes: Iterable<MessageNode>
  readonly rewards: readonly StoredReward[]
}

export interface RowOptions {
  readonly rows: 'interactions' | 'merged'
  /** What a step later is worth now, from 0 to 1. */
  readonly discount: number
  readonly includeDiscarded: boolean
  readonly skipWithoutTokens: boolean
}

export interface SessionRows {
  /** Made one by one as they are asked for. */
  readonly rows: Iterable<Row>
  /** Complete replies that came without prompt ids, ids or log-probabilities. */
  readonly withoutTokens: number
}

/** The rows of one session; a single row that says so if nothing was completed in it. */
export function rowsOfSession({ session, nodes, rewards }: RecordedSession, options: RowOptions): SessionRows {
  const facts = sessionFacts(session)
  const conversation = readConversation(session.id, nodes)
  const { interactions } = conversation
  const withoutTokens = interactions.filter(({ node, call }) => !completeTokens(node, call.usage)).length
  return { rows: rowsOf(facts, conversation, rewards, options), withoutTokens }
}

function* rowsOf(
  facts: SessionFacts,
  conversation: Conversation,
  rewards: readonly StoredReward[],
  options: RowOptions,
): Generator<Row, void, void> {
  const { interactions, lost } = conversation
  if (interactions.length === 0) yield { kind: 'empty', ...facts, lost: lost.length }
  const worth = worthOf(interactions, rewards, options.discount)
  if (options.rows === 'merged') {
    yield* mergedRows(facts, interactions, worth, options)
  } else {
    for (const each of interactions) yield interactionRow(facts, each, worth.get(each) ?? unknownWorth)
  }
  if (!options.includeDiscarded) return
  for (const sample of lost) {
    const row = options.rows === 'merged' ? lostMergedRow(facts, sample) : lostRow(facts, sample)
    if (row) yield row
  }
}
