import { hash } from 'node:crypto'
import { chainHash, messageJson, type Recorder } from '../inference/index.ts'
import type { AssistantMessage, Message, MessageNode } from '../schema/index.ts'
import { LastPath, type TextAllowance } from './_last-path.ts'
import { looseMeaningOf, meaningOf } from './_meaning.ts'
import { printOf, strangenessOf, type MessagePrint } from './_message-print.ts'

/** A node as the tree remembers it: where it stands, not what it says. */
export interface TreeNode {
  readonly seq: number
  readonly hash: string
  /** Of a reply. */
  readonly print?: MessagePrint
}

/** How a sample came to be: complete, or lost. */
export type SampleOrigin = Pick<MessageNode, 'call' | 'discarded' | 'tokens'>

/** A conversation as far as it is known. */
export interface Match {
  /** How many messages are known. */
  readonly known: number
  /** The node of the last of them. */
  readonly end: TreeNode
  /** How many of them the last request had, too, and the nodes of the others. */
  readonly common: number
  readonly nodes: readonly TreeNode[]
}

/** Before the first message. */
const root: TreeNode = { seq: -1, hash: '' }

/** Measured over 200,000, digests and tables included. */
const bytesPerNode = 360

/**
 * Nodes that say the same after the same history, and that can be told apart only by how they say it and by what follows.
 * More than this are recorded too, but a conversation goes on from one of the last.
 */
const maxTwins = 8

/**
 * The messages of one session. A request brings its whole conversation along each time: what is known of it is found, and
 * only the rest is appended. A client that rewrote its history leaves the known path where it did so, and one with
 * another system prompt leaves it at the root, so that forks and sub-agents need no rules of their own.
 *
 * A node is found by its parent and a digest of what it says, so that the tree holds no messages; only what the last
 * request said, within an allowance, because comparing that is several times as fast.
 */
export class SessionTree {
  readonly #recorder: Recorder
  readonly #lastPath: LastPath<TreeNode>
  readonly #children = new Map<string, TreeNode[]>()
  readonly #replies = new Map<string, TreeNode>()
  #size = 0
  #hasTwins = false
  /** Other spellings of known messages. */
  #spellings = 0

  constructor(recorder: Recorder, allowance: TextAllowance) {
    this.#recorder = recorder
    this.#lastPath = new LastPath(allowance)
  }

  get size(): number {
    return this.#size
  }

  /** About what it holds beside text. */
  get bytes(): number {
    return this.#size * bytesPerNode
  }

  /** Text that is kept to be fast. */
  get textChars(): number {
    return this.#lastPath.chars
  }

  /** Takes back what was recorded before, in order. */
  restore(node: MessageNode): void {
    this.#size = node.seq + 1
    if (node.discarded) return
    const restored = nodeOf(node, node.message)
    this.#enter(node.parent ?? root.seq, node.message, { node: restored, sampled: node.sampled })
    if (node.call?.replyId !== undefined) this.#replies.set(node.call.replyId, restored)
  }

  match(messages: readonly Message[]): Match {
    if (this.#hasTwins) return this.#matchTwins(messages)
    const common = this.#lastPath.commonWith(messages)
    const nodes: TreeNode[] = []
    let known = common
    let end = this.#lastPath.nodeAfter(common) ?? root
    for (; known < messages.length; known += 1) {
      const [next] = this.#childrenOf(end.seq, messages[known] as Message)
      if (!next) break
      nodes.push(next)
      end = next
    }
    return { known, end, common, nodes }
  }

  /** The node that the conversation ends with, once what is new of it is recorded. Undefined if it is empty. */
  append(messages: readonly Message[], { known, end, common, nodes }: Match): TreeNode | undefined {
    const path = [...nodes]
    let last = end
    for (let index = known; index < messages.length; index += 1) {
      const message = messages[index] as Message
      const node = this.#record(last, message, { sampled: false })
      this.#enter(last.seq, message, { node, sampled: false })
      path.push(node)
      last = node
    }
    if (!this.#hasTwins) this.#lastPath.replaceAfter(common, messages.slice(common), path)
    return last === root ? undefined : last
  }

  /** A sample after `parent`. A lost one is recorded, and is part of no conversation. */
  addSample(parent: TreeNode | undefined, message: AssistantMessage, origin: SampleOrigin): TreeNode {
    const before = parent ?? root
    const node = this.#record(before, message, { sampled: true, ...origin })
    if (origin.discarded) return node
    this.#enter(before.seq, message, { node, sampled: true })
    if (origin.call?.replyId !== undefined) this.#replies.set(origin.call.replyId, node)
    return node
  }

  /** The complete reply that the client knows by this name; the latest, should a backend use one twice. */
  replyNamed(replyId: string): TreeNode | undefined {
    return this.#replies.get(replyId)
  }

  /** It is not used for now: what was kept to be fast is given back. */
  forgetText(): void {
    this.#lastPath.clear()
  }

  /**
   * The same where nodes have twins: follows all that say the same, and takes of those that lead furthest the one that the
   * client repeats most exactly; of those that it repeats alike, the one to prefer.
   */
  #matchTwins(messages: readonly Message[]): Match {
    let ends: readonly Candidate[] = [{ node: root, strangeness: 0 }]
    let known = 0
    for (; known < messages.length; known += 1) {
      const next = this.#candidatesAfter(ends, messages[known] as Message)
      if (next.length === 0) break
      ends = next
    }
    return { known, end: ends[0]?.node ?? root, common: 0, nodes: none }
  }

  #candidatesAfter(ends: readonly Candidate[], message: Message): Candidate[] {
    const print = message.role === 'assistant' ? printOf(message) : undefined
    const next: Candidate[] = []
    for (const end of ends) {
      for (const node of this.#childrenOf(end.node.seq, message)) {
        next.push({ node, strangeness: end.strangeness + strangenessOf(node.print, print) })
      }
    }
    // A sort keeps the order of those that are equal.
    return next.toSorted((one, other) => one.strangeness - other.strangeness).slice(0, maxTwins)
  }

  /** The nodes after it that say what the message does; those to prefer come first. */
  #childrenOf(parent: number, message: Message): readonly TreeNode[] {
    const key = keyOf(parent, meaningOf(message))
    const found = this.#children.get(key)
    if (found) return found
    const loose = looseMeaningOf(message)
    const same = loose === undefined ? undefined : this.#children.get(keyOf(parent, loose))
    if (!same) return none
    // A client that writes calls in its own way does so each time. At the limit it costs time, no more.
    if (this.#spellings < this.#size) {
      this.#spellings += 1
      this.#children.set(key, same)
    }
    return same
  }

  #record(parent: TreeNode, message: Message, origin: Pick<MessageNode, 'sampled'> & SampleOrigin): TreeNode {
    const json = messageJson(message)
    const place = { seq: this.#size, hash: chainHash(parent.hash, json) }
    const before = parent === root ? null : parent.seq
    this.#size += 1
    this.#recorder.node({ ...place, parent: before, message, at: Date.now(), ...origin }, json)
    return nodeOf(place, message)
  }

  #enter(parent: number, message: Message, { node, sampled }: { node: TreeNode; sampled: boolean }): void {
    const meaning = meaningOf(message)
    const loose = looseMeaningOf(message)
    const key = keyOf(parent, loose ?? meaning)
    const twins = this.#children.get(key)
    if (!twins) {
      const only = [node]
      this.#children.set(key, only)
      if (loose !== undefined) this.#children.set(keyOf(parent, meaning), only)
      return
    }
    this.#hasTwins = true
    this.#lastPath.clear()
    // What was sampled last is what a client most likely goes on from.
    if (sampled) twins.unshift(node)
    else twins.push(node)
    if (twins.length > maxTwins) twins.splice(oldestOf(twins), 1)
  }
}

const none: readonly TreeNode[] = []

/** One of the nodes that a conversation may have come to. */
interface Candidate {
  readonly node: TreeNode
  /** How much the client's words differ from those on the way to it. */
  readonly strangeness: number
}

function nodeOf({ seq, hash: chain }: Pick<MessageNode, 'seq' | 'hash'>, message: Message): TreeNode {
  return { seq, hash: chain, ...(message.role === 'assistant' && { print: printOf(message) }) }
}

function oldestOf(twins: readonly TreeNode[]): number {
  let oldest = 0
  for (let index = 1; index < twins.length; index += 1) {
    if ((twins[index] as TreeNode).seq < (twins[oldest] as TreeNode).seq) oldest = index
  }
  return oldest
}

function keyOf(parent: number, meaning: string): string {
  return hash('sha256', `${parent} ${meaning}`, 'base64url')
}
