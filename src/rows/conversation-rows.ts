import { createHash, hash } from 'node:crypto'
import { bytesOf } from '../kit/index.ts'
import type { MessageNode } from '../schema/index.ts'
import {
  type Conversation,
  creditOf,
  type FactsOfRow,
  type MainTree,
  mainTrees,
  readConversation,
  type NodesWithTokens,
  type RowFacts,
  type Tree,
  unknownCredit,
  withTokens,
} from './conversation.ts'
import { interactionRow, lostRow } from './interaction-rows.ts'
import { lostMergedRow, mergedRows, Steps, withoutTokens } from './merged-rows.ts'
import type { Row } from './row.ts'
import type { ConversationFacts, StoredConversation } from './stored-conversation.ts'

/** The messages of a conversation, as they are read once for its rows. */
export interface ConversationMessages extends Pick<StoredConversation, 'id' | 'end'> {
  readonly bareNodes: readonly (MessageNode & { readonly lacksTokens: boolean })[]
  /** All nodes with tokens, from the first on with each call: they are read one by one, so that few are held. */
  readonly nodes: () => NodesWithTokens
}

export interface ConversationToExport extends ConversationMessages, Pick<StoredConversation, 'rewards' | 'isTrained'> {
  readonly facts: ConversationFacts
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

/** Rows of one conversation. `steps` counts its tokens while the rows are taken. */
export class ConversationRows implements AsyncIterable<Row> {
  readonly steps = new Steps()
  readonly #recorded: ConversationToExport
  readonly #options: RowOptions

  constructor(recorded: ConversationToExport, options: RowOptions) {
    this.#recorded = recorded
    this.#options = options
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Row, void, void> {
    const { nodes, rewards, isTrained, facts: shared } = this.#recorded
    const { rows, includeDiscarded, trees: exported } = this.#options
    const { main, interactions, lost } = await exportedReplies(this.#recorded, this.#options)
    const factsOf: FactsOfRow = ({ tree }) => rowFacts(shared, tree, main.has(tree))
    if (isTrained) {
      let isEmpty = true
      for await (const row of this.#complete({ interactions, main, factsOf })) {
        if (row.main) isEmpty = false
        yield row
      }
      const { value: reward = null } = rewards.find(({ node }) => node === null) ?? {}
      if (isEmpty) yield { kind: 'empty', ...shared, reward, lost: lost.length }
    } else {
      yield { kind: 'empty', ...shared, reward: null, lost: interactions.length + lost.length }
      if (includeDiscarded) yield* this.#complete({ interactions, main, factsOf })
    }
    if (!includeDiscarded) return
    const shown = exported === 'main' ? lost.filter(({ tree }) => main.has(tree)) : lost
    for await (const sample of withTokens(shown, nodes)) {
      const facts = factsOf(sample[0])
      const row = rows === 'merged' ? lostMergedRow(facts, sample) : lostRow(facts, sample)
      if (row) yield row
    }
  }

  async *#complete({ interactions, main, factsOf }: ChosenReplies): AsyncGenerator<Row & RowFacts, void, void> {
    const { nodes, rewards, isTrained, id } = this.#recorded
    const { rows, discount, skipWithoutTokens } = this.#options
    const discarded = isTrained ? null : 'unscored'
    const credit = isTrained ? creditOf(interactions, { rewards, main, discount }) : new Map<never, never>()
    for await (const reply of withTokens(interactions, nodes)) {
      const [interaction, node] = reply
      const hasTokens = this.steps.add(interaction, node)
      if (rows === 'merged') {
        if (!hasTokens && !skipWithoutTokens && isTrained) throw withoutTokens(id, node.seq)
        continue
      }
      yield interactionRow(factsOf(interaction), reply, {
        credit: credit.get(interaction) ?? unknownCredit,
        discarded,
      })
    }
    if (rows === 'merged') yield* mergedRows(this.steps, { factsOf, credit, discarded })
  }
}

interface ChosenReplies extends Pick<Conversation, 'interactions'> {
  readonly main: ReadonlySet<Tree>
  readonly factsOf: FactsOfRow
}

function rowFacts(shared: ConversationFacts, tree: Tree, main: boolean): RowFacts {
  return { ...shared, ...tree.facts(main), advantage: main ? shared.advantage : null }
}

export async function firstWithoutTokens(
  messages: ConversationMessages,
  options: TreeOptions,
): Promise<number | undefined> {
  const lacking = new Set(messages.bareNodes.filter(({ lacksTokens }) => lacksTokens).map(({ seq }) => seq))
  const { interactions } = await exportedReplies(messages, options)
  return interactions.find(({ node }) => lacking.has(node.seq))?.node.seq
}

async function exportedReplies(
  { id, end, bareNodes, nodes }: ConversationMessages,
  { mainTree, trees: exported }: TreeOptions,
): Promise<Conversation & { readonly main: ReadonlySet<Tree> }> {
  const continued = await continuedPrompts(bareNodes, nodes)
  const conversation = readConversation(id, bareNodes, continued)
  const { trees, interactions } = conversation
  const main = mainTrees(trees, mainTree, end === null ? undefined : conversation.treeOf(end))
  const chosen = exported === 'main' ? interactions.filter(({ tree }) => main.has(tree)) : interactions
  return { ...conversation, interactions: chosen, main }
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
