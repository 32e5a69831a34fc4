import { createHash, hash } from 'node:crypto'
import { bytesOf } from '../../kit/index.ts'
import type { MessageNode } from '../../schema/index.ts'
import type { StoredReward, StoredSession } from '../../store/index.ts'
import { completeTokens } from '../requests/reply-recording.ts'
import { summedTurn, type TokenChecksum } from '../sessions/session-tree.ts'
import {
  type Conversation,
  type FactsOfRow,
  type Interaction,
  type MainTree,
  mainTrees,
  readConversation,
  sessionFacts,
  type Tree,
  type NodesWithTokens,
  withTokens,
  creditOf,
} from './conversation.ts'
import { interactionRows, lostRow } from './interaction-rows.ts'
import type { Row } from './row.ts'
import { lostMergedRow, mergedRows } from './merged-rows.ts'

export interface SessionMessages {
  readonly session: StoredSession
  readonly bareNodes: readonly (MessageNode & { readonly lacksTokens: boolean })[]
  /** All nodes with tokens, from the first on with each call: they are read one by one, so that few are held. */
  readonly nodes: () => NodesWithTokens
}

export interface SessionToExport extends SessionMessages {
  readonly rewards: readonly StoredReward[]
}

export interface TreeOptions {
  readonly mainTree: MainTree
  readonly trees: 'all' | 'main'
}

export interface RowOptions extends TreeOptions {
  readonly rows: 'interactions' | 'merged'
  readonly discount: number
  readonly includeDiscarded: boolean
  readonly skipWithoutTokens: boolean
}

export class SessionRows implements AsyncIterable<Row> {
  readonly #recorded: SessionToExport
  readonly #options: RowOptions
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
    const credit = creditOf(interactions, { rewards, main, discount })
    const complete = this.#counted(withTokens(interactions, nodes))
    let isEmpty = true
    for await (const row of rows === 'merged'
      ? mergedRows(factsOf, complete, credit, this.#options)
      : interactionRows(factsOf, complete, credit)) {
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

  async *#counted(
    complete: AsyncIterable<readonly [Interaction, MessageNode]>,
  ): AsyncGenerator<readonly [Interaction, MessageNode], void, void> {
    // A reply without tokens stands for the one before it, as it does in training rows.
    const sums = new Map<Interaction, TokenChecksum | undefined>()
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

export async function firstWithoutTokens(messages: SessionMessages, options: TreeOptions): Promise<number | undefined> {
  const lacking = new Set(messages.bareNodes.filter(({ lacksTokens }) => lacksTokens).map(({ seq }) => seq))
  const { interactions } = await exportedReplies(messages, options)
  return interactions.find(({ node }) => lacking.has(node.seq))?.node.seq
}

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

/** The number of replies that are remembered. A prompt that continues an older reply begins a conversation. */
const maxRemembered = 256

interface EarlierReply {
  readonly seq: number
  readonly length: number
  readonly digest: string
}

/** Finds the reply that each prompt of SGLang's own API continues: the longest whose prompt and tokens it begins with. */
async function continuedPrompts(
  bareNodes: readonly MessageNode[],
  nodes: () => NodesWithTokens,
): Promise<ReadonlyMap<number, number>> {
  const before = new Map<number, number>()
  const due = new Set(bareNodes.filter(({ call }) => call?.api === 'generate').map(({ seq }) => seq))
  if (due.size < 2) return before
  const earlier: EarlierReply[] = []
  for await (const { seq, tokens } of nodes()) {
    if (!due.delete(seq) || !tokens?.promptIds) continue
    const { promptIds, ids } = tokens
    const last = longestBeginning(promptIds, earlier)
    if (last) before.set(seq, last.seq)
    if (earlier.length === maxRemembered) earlier.shift()
    earlier.push({ seq, length: promptIds.length + ids.length, digest: digestOf(promptIds, ids) })
    if (due.size === 0) break
  }
  return before
}

/** The longest reply that the prompt begins with. The prompt is hashed only once, however many replies there are. */
function longestBeginning(prompt: Int32Array, earlier: readonly EarlierReply[]): EarlierReply | undefined {
  const reading = createHash('sha256')
  let read = 0
  let longest: EarlierReply | undefined
  let digest = ''
  for (const each of earlier.toSorted((one, other) => one.length - other.length)) {
    if (each.length > prompt.length) break
    if (each.length > read) {
      reading.update(bytesOf(prompt.subarray(read, each.length)))
      read = each.length
      digest = reading.copy().digest('base64')
    }
    if (each.digest === digest) longest = each
  }
  return longest
}

function digestOf(prompt: Int32Array, reply: Int32Array): string {
  return hash('sha256', Buffer.concat([bytesOf(prompt), bytesOf(reply)]), 'base64')
}
