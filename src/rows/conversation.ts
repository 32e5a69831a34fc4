import { hash } from 'node:crypto'
import { type CallRecord, type DiscardRecord, type Message, type MessageNode, textOf } from '../schema/index.ts'
import type { StoredReward } from '../store/index.ts'
import type { ConversationFacts } from './stored-conversation.ts'

export interface Interaction {
  /** The node without its tokens: those of a long session are too many to hold. */
  readonly node: MessageNode
  readonly call: CallRecord
  readonly id: string
  /** The last complete reply before this one; messages of others may lie in between. */
  readonly parent: Interaction | null
  readonly children: Interaction[]
  readonly messages: readonly Message[]
  readonly tree: Tree
  /** The number of complete replies from the beginning of the conversation up to and including this one. */
  readonly turns: number
}

export interface LostSample {
  readonly node: MessageNode
  readonly discarded: DiscardRecord
  readonly id: string
  readonly parent: Interaction | null
  readonly messages: readonly Message[]
  readonly tree: Tree
}

/** A session's trees of messages, seen as their replies, in the order of the nodes: parents before children. */
export interface Conversation {
  readonly trees: readonly Tree[]
  readonly interactions: readonly Interaction[]
  readonly lost: readonly LostSample[]
  /** The tree of a message. */
  readonly treeOf: (node: number) => Tree | undefined
}

interface NodePosition {
  readonly node: MessageNode
  readonly interaction: Interaction | null
  readonly tree: Tree
}

/** Reads the nodes of a conversation in order. `continued`: the parents of replies that have none among the messages. */
export function readConversation(
  session: string,
  nodes: Iterable<MessageNode>,
  continued: ReadonlyMap<number, number>,
): Conversation {
  const positions = new Map<number, NodePosition>()
  const interactions: Interaction[] = []
  const lost: LostSample[] = []
  const trees: Tree[] = []
  for (const node of nodes) {
    const before = positions.get(continued.get(node.seq) ?? node.parent ?? nowhere)
    const parent = before?.interaction ?? null
    const tree = before?.tree ?? new Tree(node)
    if (!before) trees.push(tree)
    const { call, discarded } = node
    if (node.sampled && call) {
      const messages = messagesSince(parent, node, positions)
      const turns = (parent?.turns ?? 0) + 1
      const id = nameOf(session, node, call)
      const interaction = { node, call, id, parent, children: [], messages, tree, turns }
      parent?.children.push(interaction)
      interactions.push(interaction)
      tree.add(call, turns)
      positions.set(node.seq, { node, interaction, tree })
    } else {
      if (discarded) {
        const messages = messagesSince(parent, node, positions)
        lost.push({ node, discarded, id: nameOf(session, node, discarded), parent, messages, tree })
        tree.add(discarded, 0)
      }
      positions.set(node.seq, { node, interaction: parent, tree })
    }
  }
  return {
    interactions,
    lost,
    trees: trees.filter(({ isUsed }) => isUsed),
    treeOf: (node) => positions.get(node)?.tree,
  }
}

const nowhere = -1

/** Nodes in the order in which they were recorded, with tokens; some may be newer than the nodes that were read before. */
export type NodesWithTokens = Iterable<MessageNode> | AsyncIterable<MessageNode>

export async function* withTokens<Item extends { readonly node: MessageNode }>(
  items: readonly Item[],
  nodes: () => NodesWithTokens,
): AsyncGenerator<readonly [Item, MessageNode], void, void> {
  if (items.length === 0) return
  const bySeq = new Map(items.map((item) => [item.node.seq, item]))
  for await (const node of nodes()) {
    const item = bySeq.get(node.seq)
    if (item) yield [item, node]
    if (node.seq === items.at(-1)?.node.seq) return
  }
}

function messagesSince(
  parent: Interaction | null,
  node: MessageNode,
  positions: ReadonlyMap<number, NodePosition>,
): Message[] {
  const messages = [node.message]
  let position = node.parent === null ? undefined : positions.get(node.parent)
  while (position && position.node !== parent?.node) {
    messages.push(position.node.message)
    position = position.node.parent === null ? undefined : positions.get(position.node.parent)
  }
  return messages.toReversed()
}

function nameOf(session: string, { seq }: MessageNode, { replyId }: { readonly replyId?: string }): string {
  return replyId ?? `${session}/${seq}`
}

export type MainTree = 'longest' | 'first' | 'all'

/** Facts about the tree of a row, by which a trainer tells an agent from its side calls. */
export interface TreeFacts {
  /** Whether the row is of the session's main tree. Only such rows get the session's reward. */
  readonly main: boolean
  readonly tree: {
    readonly root: number
    /** The SHA-256 of the first message's text, in hex; null if that message is no system prompt. */
    readonly system: string | null
    /** The model and the functions of the first request. The functions are null in records of earlier versions. */
    readonly model: string
    readonly tools: readonly string[] | null
    readonly requests: number
  }
}

export interface RowFacts extends ConversationFacts, TreeFacts {}

export type FactsOfRow = (sample: { readonly tree: Tree }) => RowFacts

/** The messages of a session that go back to one first message, with a count of the replies among them. */
export class Tree {
  readonly #root: number
  readonly #system: string | null
  #first: Pick<CallRecord, 'model' | 'tools'> | undefined
  #requests = 0
  /** The complete replies of the longest branch, and the tokens of its last prompt and reply. */
  #turns = 0
  #tokens = 0

  constructor({ seq, message }: MessageNode) {
    this.#root = seq
    const isSystem = message.role === 'system' || message.role === 'developer'
    this.#system = isSystem ? hash('sha256', textOf(message)) : null
  }

  /** Counts a reply. `turns`: the number of complete replies up to and including it; 0 for a lost one. */
  add(call: Pick<CallRecord, 'model' | 'tools' | 'usage'>, turns: number): void {
    this.#first ??= call
    this.#requests += 1
    const tokens = call.usage.input + call.usage.output
    if (turns < this.#turns || (turns === this.#turns && tokens <= this.#tokens)) return
    this.#turns = turns
    this.#tokens = tokens
  }

  get isUsed(): boolean {
    return this.#requests > 0
  }

  get hasCompleteReply(): boolean {
    return this.#turns > 0
  }

  isLongerThan(other: Tree): boolean {
    return this.#turns === other.#turns ? this.#tokens > other.#tokens : this.#turns > other.#turns
  }

  /** Whether it begins like the other, as after a summary of the history; one without prompt and functions never does. */
  beginsLike(other: Tree): boolean {
    const names = namesIn(this)
    if (this.#system === null && names === '[]') return false
    const isSameModel = this.#first?.model === other.#first?.model
    return this.#system === other.#system && isSameModel && names === namesIn(other)
  }

  get tools(): readonly string[] | null {
    return this.#first?.tools ?? null
  }

  facts(main: boolean): TreeFacts {
    const model = this.#first?.model ?? ''
    return {
      main,
      tree: { root: this.#root, system: this.#system, model, tools: this.tools, requests: this.#requests },
    }
  }
}

/** `end`: the tree in which the conversation ended, where that is known. It is the longest one otherwise. */
export function mainTrees(trees: readonly Tree[], rule: MainTree, end?: Tree): ReadonlySet<Tree> {
  if (rule === 'all') return new Set(trees)
  const answered = trees.filter(({ hasCompleteReply }) => hasCompleteReply)
  const [first, ...others] = answered.length > 0 ? answered : trees
  if (!first) return new Set()
  const longest = others.reduce((found, tree) => (tree.isLongerThan(found) ? tree : found), first)
  const main = rule === 'first' ? first : (end ?? longest)
  return new Set(trees.filter((tree) => tree === main || tree.beginsLike(main)))
}

/** The names of a tree's functions, in one order: some clients list them in another one each time. */
function namesIn({ tools }: Tree): string {
  return JSON.stringify(tools?.toSorted() ?? [])
}

/** The reward and return of an interaction; null if none was given, which is not the same as 0. */
export interface Credit {
  readonly reward: number | null
  readonly return: number | null
}

export const unknownCredit: Credit = { reward: null, return: null }

interface Rewards {
  readonly rewards: readonly StoredReward[]
  readonly main: ReadonlySet<Tree>
  /** The factor by which a later reward counts less per step, from 0 to 1. */
  readonly discount: number
}

/**
 * The credit of each interaction. The session's reward goes to the last interaction of every branch of a main tree, in addition
 * to its own. A return is the reward plus the discounted mean of the returns of the branches that follow; branches without a return are
 * left out of the mean.
 */
export function creditOf(
  interactions: readonly Interaction[],
  { rewards, main, discount }: Rewards,
): ReadonlyMap<Interaction, Credit> {
  const rewardOf = new Map(rewards.map(({ node, value }) => [node, value]))
  const credit = new Map<Interaction, Credit>()
  // Children come after their parents, so going backwards needs no recursion: their returns are already there.
  for (const interaction of interactions.toReversed()) {
    const { node, children, tree } = interaction
    const isLast = children.length === 0 && main.has(tree)
    const reward = sumOf([rewardOf.get(node.seq), isLast ? rewardOf.get(null) : undefined])
    const later = meanOf(children.map((child) => credit.get(child)?.return ?? null))
    credit.set(interaction, { reward, return: sumOf([reward, later === null ? null : discount * later]) })
  }
  return credit
}

function sumOf(values: readonly (number | null | undefined)[]): number | null {
  let sum: number | null = null
  for (const value of values) if (value !== null && value !== undefined) sum = (sum ?? 0) + value
  return sum
}

function meanOf(values: readonly (number | null)[]): number | null {
  const known = values.filter((value) => value !== null)
  return known.length === 0 ? null : known.reduce((sum, value) => sum + value, 0) / known.length
}
