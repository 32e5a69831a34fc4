import { hash } from 'node:crypto'
import { chainHash, messageJson, type Recorder } from '../inference/index.ts'
import type { AssistantMessage, Message, MessageNode } from '../schema/index.ts'
import { LastPath, type TextAllowance } from './_last-path.ts'
import { looseMeaningOf, meaningOf } from './_meaning.ts'

/** A node as the tree remembers it: where it stands, not what it says. */
export interface TreeNode {
  readonly seq: number
  readonly hash: string
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

/**
 * Nodes that say the same after the same history, and that can be told apart only by what follows. More than this are
 * recorded too, but a conversation goes on from one of the first.
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

  /** Takes back what was recorded before, in order. */
  restore(node: MessageNode): void {
    this.#size = node.seq + 1
    if (node.discarded) return
    const restored = { seq: node.seq, hash: node.hash }
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

  /** The same where nodes have twins: follows all that say the same, and takes of those that lead furthest the first. */
  #matchTwins(messages: readonly Message[]): Match {
    let ends: readonly TreeNode[] = [root]
    let known = 0
    for (; known < messages.length; known += 1) {
      const next = ends.flatMap((end) => this.#childrenOf(end.seq, messages[known] as Message))
      if (next.length === 0) break
      ends = next.slice(0, maxTwins)
    }
    return { known, end: ends[0] ?? root, common: 0, nodes: none }
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
    const node = { seq: this.#size, hash: chainHash(parent.hash, json) }
    const before = parent === root ? null : parent.seq
    this.#size += 1
    this.#recorder.node({ ...node, parent: before, message, at: Date.now(), ...origin }, json)
    return node
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
    if (twins.length === maxTwins) return
    // What was sampled last is what a client most likely goes on from.
    if (sampled) twins.unshift(node)
    else twins.push(node)
  }
}

const none: readonly TreeNode[] = []

function keyOf(parent: number, meaning: string): string {
  return hash('sha256', `${parent} ${meaning}`, 'base64url')
}
