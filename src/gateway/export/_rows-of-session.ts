import type { MessageNode } from '../../schema/index.ts'
import type { StoredReward, StoredSession } from '../../store/index.ts'
import { completeTokens } from '../captured-tokens.ts'
import { summedTurn, type TokenSum } from '../token-sum.ts'
import { continuedPrompts } from './_rows-continued-prompts.ts'
import {
  type Conversation,
  type Interaction,
  readConversation,
  type WholeNodes,
  withTokens,
} from './_rows-conversation.ts'
import { interactionRows, lostRow } from './_rows-interactions.ts'
import { lostMergedRow, mergedRows } from './_rows-merged.ts'
import type { Row } from './_rows-parts.ts'
import { worthOf } from './_rows-returns.ts'
import { type FactsOfRow, sessionFacts } from './_rows-session.ts'
import { type MainTree, mainTrees, type Tree } from './_rows-trees.ts'

/** The messages that the store has of a session. */
export interface SessionMessages {
  readonly session: StoredSession
  /** All nodes, without their tokens. */
  readonly bareNodes: readonly (MessageNode & { readonly lacksTokens: boolean })[]
  /** All nodes with tokens, from the first on with each call: they are read one by one, so that few are held. */
  readonly nodes: () => WholeNodes
}

/** All that the store has of a session. */
export interface SessionToExport extends SessionMessages {
  readonly rewards: readonly StoredReward[]
}

/** Which trees are the main ones, and whether only these are exported. */
export interface TreeOptions {
  readonly mainTree: MainTree
  readonly trees: 'all' | 'main'
}

export interface RowOptions extends TreeOptions {
  readonly rows: 'interactions' | 'merged'
  /** The factor by which a later reward counts less per step, from 0 to 1. */
  readonly discount: number
  readonly includeDiscarded: boolean
  readonly skipWithoutTokens: boolean
}

/** The rows of one session; an `empty` row if there is none of its main tree. The counts are final when all rows are made. */
export class SessionRows implements AsyncIterable<Row> {
  readonly #recorded: SessionToExport
  readonly #options: RowOptions
  /** Complete replies that came without prompt ids, ids or log-probabilities. */
  withoutTokens = 0
  /** Complete replies after another one, both with tokens; and those whose prompt does not begin with the tokens before it. */
  laterTurns = 0
  driftedTurns = 0

  constructor(recorded: SessionToExport, options: RowOptions) {
    this.#recorded = recorded
    this.#options = options
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Row, void, void> {
    const { session, nodes, rewards } = this.#recorded
    const { rows, discount, includeDiscarded, trees: exported } = this.#options
    const shared = sessionFacts(session)
    const { main, interactions, lost } = await exportedReplies(this.#recorded, this.#options)
    const factsOf: FactsOfRow = ({ tree }) => ({ ...shared, ...tree.facts(main.has(tree)) })
    const worth = worthOf(interactions, { said: rewards, main, discount })
    const complete = this.#counted(withTokens(interactions, nodes))
    let isEmpty = true
    for await (const row of rows === 'merged'
      ? mergedRows(factsOf, complete, worth, this.#options)
      : interactionRows(factsOf, complete, worth)) {
      if (row.main) isEmpty = false
      yield row
    }
    if (isEmpty) {
      const { value: reward = null } = rewards.find(({ node }) => node === null) ?? {}
      yield { kind: 'empty', ...shared, reward, lost: lost.length }
    }
    if (!includeDiscarded) return
    const shown = exported === 'main' ? lost.filter(({ tree }) => main.has(tree)) : lost
    for await (const sample of withTokens(shown, nodes)) {
      const row = rows === 'merged' ? lostMergedRow(factsOf, sample) : lostRow(factsOf, sample)
      if (row) yield row
    }
  }

  /** Passes the replies on, and counts their turns. */
  async *#counted(
    complete: AsyncIterable<readonly [Interaction, MessageNode]>,
  ): AsyncGenerator<readonly [Interaction, MessageNode], void, void> {
    // A reply without tokens stands for the one before it, as it does in training rows.
    const sums = new Map<Interaction, TokenSum | undefined>()
    for await (const reply of complete) {
      const [interaction, node] = reply
      const earlier = interaction.parent ? sums.get(interaction.parent) : undefined
      const tokens = completeTokens(node, interaction.call.usage)
      const { sum, turn } = tokens ? summedTurn(tokens, earlier) : { sum: earlier }
      sums.set(interaction, sum)
      if (!tokens) this.withoutTokens += 1
      if (turn) this.laterTurns += 1
      if (turn === 'drifted') this.driftedTurns += 1
      yield reply
    }
  }
}

/** The first complete reply that cannot be trained on, among those that are exported. */
export async function firstWithoutTokens(messages: SessionMessages, options: TreeOptions): Promise<number | undefined> {
  const lacking = new Set(messages.bareNodes.filter(({ lacksTokens }) => lacksTokens).map(({ seq }) => seq))
  const { interactions } = await exportedReplies(messages, options)
  return interactions.find(({ node }) => lacking.has(node.seq))?.node.seq
}

/** The conversation of a session, with its main trees and the complete replies that are exported. */
async function exportedReplies(
  { session, bareNodes, nodes }: SessionMessages,
  { mainTree, trees: exported }: TreeOptions,
): Promise<Conversation & { readonly main: ReadonlySet<Tree> }> {
  const continued = await continuedPrompts(bareNodes, nodes)
  const { trees, interactions, lost } = readConversation(session.id, bareNodes, continued)
  const main = mainTrees(trees, mainTree)
  const chosen = exported === 'main' ? interactions.filter(({ tree }) => main.has(tree)) : interactions
  return { trees, interactions: chosen, lost, main }
}
