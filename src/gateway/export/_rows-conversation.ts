import type { CallRecord, DiscardRecord, Message, MessageNode } from '../../schema/index.ts'
import { Tree } from './_rows-trees.ts'

/** One complete reply and the messages that led to it. */
export interface Interaction {
  /** The node without its tokens: those of a long session are too many to hold. */
  readonly node: MessageNode
  readonly call: CallRecord
  /** The client's id of the reply. */
  readonly id: string
  /** The last complete reply before this one; messages of others may lie in between. */
  readonly parent: Interaction | null
  readonly children: Interaction[]
  /** The messages since the parent, including the reply. */
  readonly messages: readonly Message[]
  readonly tree: Tree
  /** The number of complete replies from the beginning of the conversation up to and including this one. */
  readonly turns: number
}

/** A reply that was not completed. Nothing follows it. */
export interface LostSample {
  readonly node: MessageNode
  readonly discarded: DiscardRecord
  readonly id: string
  readonly parent: Interaction | null
  readonly messages: readonly Message[]
  readonly tree: Tree
}

/**
 * A session's trees of messages, seen as their replies. All lists are in the order of the nodes, so parents come before
 * children.
 */
export interface Conversation {
  /** The trees that have a reply, complete or lost. */
  readonly trees: readonly Tree[]
  readonly interactions: readonly Interaction[]
  readonly lost: readonly LostSample[]
}

/** A node, and the last complete reply up to and including it. */
interface Place {
  readonly node: MessageNode
  readonly interaction: Interaction | null
  readonly tree: Tree
}

/**
 * Reads all nodes of a session, in the order in which they were recorded. `continued` gives the parent of replies that have
 * none among the messages.
 */
export function readConversation(
  session: string,
  nodes: Iterable<MessageNode>,
  continued: ReadonlyMap<number, number>,
): Conversation {
  const places = new Map<number, Place>()
  const interactions: Interaction[] = []
  const lost: LostSample[] = []
  const trees: Tree[] = []
  for (const node of nodes) {
    const before = places.get(continued.get(node.seq) ?? node.parent ?? nowhere)
    const parent = before?.interaction ?? null
    const tree = before?.tree ?? new Tree(node)
    if (!before) trees.push(tree)
    const { call, discarded } = node
    if (node.sampled && call) {
      const messages = messagesSince(parent, node, places)
      const turns = (parent?.turns ?? 0) + 1
      const id = nameOf(session, node, call)
      const interaction = { node, call, id, parent, children: [], messages, tree, turns }
      parent?.children.push(interaction)
      interactions.push(interaction)
      tree.add(call, turns)
      places.set(node.seq, { node, interaction, tree })
    } else {
      if (discarded) {
        const messages = messagesSince(parent, node, places)
        lost.push({ node, discarded, id: nameOf(session, node, discarded), parent, messages, tree })
        tree.add(discarded, 0)
      }
      places.set(node.seq, { node, interaction: parent, tree })
    }
  }
  return { interactions, lost, trees: trees.filter(({ isUsed }) => isUsed) }
}

const nowhere = -1

/** Nodes in the order in which they were recorded, with tokens; some may be newer than the nodes that were read before. */
export type WholeNodes = Iterable<MessageNode> | AsyncIterable<MessageNode>

/** Each item with its node as it is when its tokens are read, one after the other. */
export async function* withTokens<Item extends { readonly node: MessageNode }>(
  items: readonly Item[],
  nodes: () => WholeNodes,
): AsyncGenerator<readonly [Item, MessageNode], void, void> {
  if (items.length === 0) return
  const bySeq = new Map(items.map((item) => [item.node.seq, item]))
  for await (const node of nodes()) {
    const item = bySeq.get(node.seq)
    if (item) yield [item, node]
    if (node.seq === items.at(-1)?.node.seq) return
  }
}

function messagesSince(parent: Interaction | null, node: MessageNode, places: ReadonlyMap<number, Place>): Message[] {
  const messages = [node.message]
  let place = node.parent === null ? undefined : places.get(node.parent)
  while (place && place.node !== parent?.node) {
    messages.push(place.node.message)
    place = place.node.parent === null ? undefined : places.get(place.node.parent)
  }
  return messages.toReversed()
}

function nameOf(session: string, { seq }: MessageNode, { replyId }: { readonly replyId?: string }): string {
  return replyId ?? `${session}/${seq}`
}
