import { chainHash, type Recorder } from '../../inference/index.ts'
import type { AssistantMessage, CallRecord, Message, MessageNode, ToolCall } from '../../schema/index.ts'
import { LastPath, type KnownBeginning } from './last-path.ts'
import { callsIn, RecordedCalls, withRecordedArguments } from './_recorded-calls.ts'
import { replyIn } from './reply-in.ts'
import { SaidMessage } from './_said-message.ts'
import type { TextAllowance } from './_text-allowance.ts'
import { TreeNode } from './tree-node.ts'

/** The origin of a sample, complete or lost. */
export type SampleOrigin = Pick<MessageNode, 'call' | 'discarded' | 'tokens'>

/** The part of a conversation that the tree knows. */
export interface Match {
  /** How many messages are known. */
  readonly known: number
  /** The node of the last known message. */
  readonly end: TreeNode
  /** How many known messages are on the last path, or were not looked for; and the nodes of the others. */
  readonly common: number
  readonly nodes: readonly TreeNode[]
  /** The messages after the common ones, as far as they were looked for. */
  readonly said: readonly SaidMessage[]
  /** The nodes of known messages whose tool calls the client has written in another spelling, by their place. */
  readonly respelled: ReadonlyMap<number, TreeNode>
}

/** The most bytes of memory for a node. With tool calls it is 345 in plain conversations, 430 with forks, 480 with other spellings. */
const bytesPerNode = 480

/** Bytes of memory for the name of a reply or of an item, or for a digest, with its entry in a table. Measured over 400,000 of 54 characters. */
const bytesPerName = 140

/**
 * How many twins are followed: nodes that say the same after the same history, and differ only in spelling and in what
 * follows. More are recorded, too, but a conversation continues one that was continued before, or one of the newest.
 */
const maxTwins = 8

/**
 * The messages of one session. A request brings its whole conversation along each time: the known part is found, and
 * only the rest is appended. A client that rewrote its history leaves the known path where it did so, and one with
 * another system prompt leaves it at the root, so that forks and sub-agents need no rules of their own.
 *
 * A node is found by its parent and a digest of its message, so the tree holds no messages. Only the text of the
 * last request and its reply is kept, within an allowance, because comparing text is several times as fast.
 */
export class SessionTree {
  readonly #recorder: Recorder
  readonly #lastPath: LastPath<TreeNode>
  readonly #recordedCalls: RecordedCalls
  /** The node before the first message. */
  readonly #root = new TreeNode(-1, '', nothingSaid)
  /** The nodes of conversations, at their numbers. Lost samples have none. */
  readonly #nodes: (TreeNode | undefined)[] = []
  /** Replies by the client's name for them, and by that of an item of theirs. */
  readonly #replies = new Map<string, TreeNode>()
  readonly #items = new Map<string, TreeNode>()
  /** Calls whose outputs came in the same reply. */
  readonly #servedCalls = new Set<string>()
  /** The nodes of all replies of one name, if a backend used it more than once. */
  readonly #namesakes = new Map<string, number[]>()
  #size = 0
  #hasTwins = false
  /** How many other spellings of known messages have an entry. */
  #spellings = 0
  /** How many digests of replies as Claude Code may send them back have an entry: ten of a reply at most. */
  #changed = 0

  constructor(recorder: Recorder, allowance: TextAllowance) {
    this.#recorder = recorder
    this.#lastPath = new LastPath(allowance)
    this.#recordedCalls = new RecordedCalls(allowance)
  }

  get size(): number {
    return this.#size
  }

  /** The approximate memory of the tree, text aside. */
  get bytes(): number {
    const names = this.#replies.size + this.#items.size + this.#servedCalls.size + this.#changed
    return this.#size * bytesPerNode + names * bytesPerName
  }

  /** Characters of text that are kept to be fast. */
  get textChars(): number {
    return this.#lastPath.chars + this.#recordedCalls.chars
  }

  /** Restores a node that was recorded before; called in order. */
  restore(node: MessageNode): void {
    this.#size = node.seq + 1
    const reply = replyIn(node)
    if (node.discarded && !reply) return
    const said = asTold(new SaidMessage(node.message), reply)
    const restored = new TreeNode(node.seq, node.hash, said)
    const parent = node.parent === null ? this.#root : this.#nodes[node.parent]
    if (parent) {
      parent.isContinued = true
      this.#enter(parent, restored, node.sampled)
      if (reply) this.#enterChanged(parent, said, reply)
    }
    this.#name(restored, reply)
  }

  /** Finds the known part of a conversation. `names`: the client's names for replies among the messages, by their index. */
  match(messages: readonly Message[], before?: KnownBeginning<TreeNode>, names = noNames): Match {
    if (this.#hasTwins) return this.#matchTwins(messages, { count: 0, node: this.#root }, names)
    const common = this.#lastPath.commonWith(messages, before)
    const nodes: TreeNode[] = []
    const said: SaidMessage[] = []
    const respelled = new Map<number, TreeNode>()
    for (const place of this.#lastPath.respelledWithin(common)) {
      respelled.set(place, this.#lastPath.nodeAfter(place + 1) ?? this.#root)
    }
    let known = common
    let end = this.#lastPath.nodeAfter(common) ?? this.#root
    for (; known < messages.length; known += 1) {
      const message = new SaidMessage(messages[known] as Message)
      said.push(message)
      const [next] = this.#followersOf(end, message)
      if (!next) break
      nodes.push(next)
      if (!next.isSpelledLike(message)) respelled.set(known, next)
      end = next
    }
    return { known, end, common, nodes, said, respelled }
  }

  /** The nodes of respelled messages whose recorded calls are not in memory. */
  unreadCalls({ respelled }: Match): number[] {
    return Array.from(respelled.values(), ({ seq }) => seq).filter((seq) => !this.#recordedCalls.of(seq))
  }

  /** Keeps recorded calls that were read from the store, if there is room for them. */
  keepCalls(seq: number, calls: readonly ToolCall[]): void {
    this.#recordedCalls.keep(seq, calls)
  }

  /**
   * The conversation with the arguments of tool calls as they were sampled, so that the model sees the tokens that it wrote.
   * `read`: the recorded calls that are not in memory. The same list if nothing was respelled.
   */
  inRecordedSpelling(
    messages: readonly Message[],
    { respelled }: Match,
    read: ReadonlyMap<number, readonly ToolCall[]>,
  ): readonly Message[] {
    if (respelled.size === 0) return messages
    const restored = [...messages]
    for (const [place, { seq }] of respelled) {
      const message = messages[place]
      const recorded = this.#recordedCalls.of(seq) ?? read.get(seq)
      if (recorded && message?.role === 'assistant') restored[place] = withRecordedArguments(message, recorded)
    }
    return restored
  }

  /** Records the new messages of a conversation, and returns the node it ends with. Undefined if it is empty. */
  append(messages: readonly Message[], match: Match): TreeNode | undefined {
    const { known, end, common, respelled } = match
    const path = [...match.nodes]
    const words = [...match.said]
    let last = end
    // Calls that came back as they were sampled are not needed: a client writes them in the same way each time.
    for (const [index, { seq }] of path.entries()) if (!respelled.has(common + index)) this.#recordedCalls.drop(seq)
    for (let index = known; index < messages.length; index += 1) {
      const message = (words[index - common] ??= new SaidMessage(messages[index] as Message))
      const { seq, hash } = this.#record(last, message.message)
      const node = new TreeNode(seq, hash, message)
      node.sum = last.sum
      last.isContinued = true
      this.#enter(last, node, false)
      path.push(node)
      last = node
    }
    if (!this.#hasTwins) this.#lastPath.replaceAfter(common, words, { nodes: path, respelled })
    return last === this.#root ? undefined : last
  }

  /** Shares the text of the conversation that was just appended, from the given message on, because it is kept elsewhere. */
  shareTextWith(messages: readonly Message[], from: number): void {
    this.#lastPath.shareTextWith(messages, from)
  }

  /** Records a sample after `parent`. A lost one is recorded, too, but is part of no conversation. */
  addSample(parent: TreeNode | undefined, message: AssistantMessage, origin: SampleOrigin): TreeNode {
    const before = parent ?? this.#root
    const { seq, hash } = this.#record(before, message, origin)
    const told = asTold(new SaidMessage(message), origin.call)
    const node = new TreeNode(seq, hash, told)
    if (origin.discarded) return node
    this.#enter(before, node, true)
    this.#enterChanged(before, told, origin.call)
    this.#recordedCalls.keep(seq, callsIn(message))
    if (!this.#hasTwins) this.#lastPath.extend(before, told, node)
    this.#name(node, origin.call)
    return node
  }

  /** Enters the names of a reply, and of its items: clients of Responses may send either. */
  #name(node: TreeNode, call: CallRecord | undefined): void {
    if (call?.replyId === undefined) return
    const earlier = this.#replies.get(call.replyId)
    if (earlier) {
      const namesakes = this.#namesakes.get(call.replyId)
      if (namesakes) namesakes.push(node.seq)
      else this.#namesakes.set(call.replyId, [earlier.seq, node.seq])
    }
    this.#replies.set(call.replyId, node)
    for (const ids of Object.values(call.itemIds ?? {})) for (const id of ids) this.#items.set(id, node)
    if (call.api !== 'responses' || call.original?.api !== 'responses') return
    for (const { id, type, call_id: callId } of call.original.output) {
      if (typeof id === 'string') this.#items.set(id, node)
      const isOutput = typeof type === 'string' && type.endsWith('_call_output')
      if (isOutput && typeof callId === 'string') this.#servedCalls.add(callId)
    }
  }

  /** The complete reply that the client knows by this name; the latest, if a backend used the name twice. */
  replyNamed(replyId: string): TreeNode | undefined {
    return this.#replies.get(replyId)
  }

  /** Whether something was said after this node. */
  isContinued(node: number): boolean {
    return this.#nodes[node]?.isContinued === true
  }

  /** Notes whether a client got the reply. Among twins, an unheard one is the last that a conversation continues. */
  setHeard(node: number, isHeard: boolean): void {
    const reply = this.#nodes[node]
    if (reply) reply.isHeard = isHeard
  }

  /** Whether a reply of Responses contained the output of this call itself. */
  hasOutputOf(callId: string): boolean {
    return this.#servedCalls.has(callId)
  }

  /** The nodes of all complete replies of that name, the oldest first. */
  repliesNamed(replyId: string): readonly number[] {
    const only = this.#replies.get(replyId)
    return this.#namesakes.get(replyId) ?? (only ? [only.seq] : [])
  }

  /** Gives back the text that was kept to be fast, because the session is not used for now. */
  forgetText(): void {
    this.#lastPath.clear()
    this.#recordedCalls.clear()
  }

  /** Like `match`, for a client that has named the reply that it continues, so that no twin of that reply is taken. */
  matchAfter({ count, node }: KnownBeginning<TreeNode>, messages: readonly Message[]): Match {
    return this.#hasTwins ? this.#matchTwins(messages, { count, node }) : this.match(messages)
  }

  /**
   * Like `match`, for trees in which nodes have twins. Follows all nodes that say the same; among those that lead furthest it
   * takes the one that the client repeats most exactly, and among equals the preferred one. A node that the client names is
   * taken at once.
   */
  #matchTwins(
    messages: readonly Message[],
    before: KnownBeginning<TreeNode>,
    names: ReadonlyMap<number, string> = noNames,
  ): Match {
    let ends: readonly Candidate[] = [{ node: before.node, strangeness: 0, before: undefined }]
    const said: SaidMessage[] = []
    let known = before.count
    for (; known < messages.length; known += 1) {
      const message = new SaidMessage(messages[known] as Message)
      said.push(message)
      const next = this.#candidatesAfter(ends, message)
      if (next.length === 0) break
      const name = names.get(known) ?? ''
      const named = this.#replies.get(name) ?? this.#items.get(name)
      const chosen = next.find(({ node }) => node === named)
      ends = chosen ? [chosen] : next
    }
    const nodes = ends[0] ? pathTo(ends[0]) : none
    const respelled = new Map<number, TreeNode>()
    for (const [index, node] of nodes.entries()) {
      if (!node.isSpelledLike(said[index] as SaidMessage)) respelled.set(before.count + index, node)
    }
    return { known, end: ends[0]?.node ?? this.#root, common: before.count, nodes, said, respelled }
  }

  #candidatesAfter(ends: readonly Candidate[], message: SaidMessage): Candidate[] {
    const next: Candidate[] = []
    for (const end of ends) {
      for (const node of this.#followersOf(end.node, message)) {
        next.push({ node, strangeness: end.strangeness + node.strangenessOf(message), before: end })
      }
    }
    const unheard = ({ node }: Candidate): number => (node.isHeard ? 0 : 1)
    // The sort is stable: equal candidates stay in order of preference.
    return next
      .toSorted((one, other) => one.strangeness - other.strangeness || unheard(one) - unheard(other))
      .slice(0, maxTwins)
  }

  /** The nodes after `parent` that say what the message does, in order of preference. */
  #followersOf(parent: TreeNode, message: SaidMessage): readonly TreeNode[] {
    const found = parent.following(message.digest)
    if (found.length > 0) return found
    const { looseDigest } = message
    if (looseDigest === undefined) return none
    const same = parent.following(looseDigest)
    // The spelling is remembered, because a client that writes calls in its own way does so each time. Beyond the limit such
    // calls only take longer to find.
    if (same.length > 0 && this.#spellings < this.#size) {
      this.#spellings += 1
      parent.addSpelling(message.digest, looseDigest)
    }
    return same
  }

  /** Records a message after `parent`. `origin`: of a sample; others have none. */
  #record(parent: TreeNode, message: Message, origin?: SampleOrigin): Pick<MessageNode, 'seq' | 'hash'> {
    // Not `messageJson`, which keeps the text: it is rarely asked for again, and keeping it takes as long as writing it.
    const json = JSON.stringify(message)
    const seq = this.#size
    const hash = chainHash(parent.hash, json)
    const before = parent === this.#root ? null : parent.seq
    const sampled = origin !== undefined
    this.#size += 1
    const node: MessageNode = { seq, hash, parent: before, message, at: Date.now(), sampled, ...origin }
    this.#recorder.node(node, json)
    return node
  }

  #enter(parent: TreeNode, node: TreeNode, isSampled: boolean): void {
    this.#nodes[node.seq] = node
    const twins = parent.add(node)
    if (!twins) return
    this.#hasTwins = true
    this.#lastPath.clear()
    // The newest sample is the one that a client most likely continues.
    if (isSampled) twins.unshift(node)
    else twins.push(node)
    if (twins.length > maxTwins) twins.splice(leastLikely(twins), 1)
  }

  /** Lets a reply be found as Claude Code sends it back, which changes calls. Clients of other APIs are not taken for it. */
  #enterChanged(parent: TreeNode, said: SaidMessage, call: CallRecord | undefined): void {
    const { looseDigest } = said
    if (call?.api !== 'messages' || looseDigest === undefined) return
    for (const digest of said.changedDigests()) if (parent.addSpelling(digest, looseDigest)) this.#changed += 1
  }
}

/** The oldest twin that was not continued so far; if there is none, the oldest. */
function leastLikely(twins: readonly TreeNode[]): number {
  let chosen = 0
  for (let index = 1; index < twins.length; index += 1) {
    const one = twins[chosen] as TreeNode
    const other = twins[index] as TreeNode
    if (one.isContinued === other.isContinued ? other.seq < one.seq : one.isContinued) chosen = index
  }
  return chosen
}

const none: readonly TreeNode[] = []
/** What the node before the first message says. */
const nothingSaid = { digest: '', looseDigest: undefined, wholeDigest: '' }
const noNames: ReadonlyMap<number, string> = new Map()

/** A node that a conversation may have come to. */
interface Candidate {
  readonly node: TreeNode
  /** How much the client's words differ from those on the way to the node. */
  readonly strangeness: number
  /** The node before it. Undefined where the search began. */
  readonly before: Candidate | undefined
}

/** The nodes on the way to a candidate, without the one where the search began. */
function pathTo(end: Candidate): TreeNode[] {
  const nodes: TreeNode[] = []
  for (let each = end; each.before; each = each.before) nodes.push(each.node)
  return nodes.toReversed()
}

/** The message as its client was told it: parts that only the model's API can say are not told to clients of another one. */
function asTold(said: SaidMessage, call: CallRecord | undefined): SaidMessage {
  const { message } = said
  if (message.role !== 'assistant' || !message.others || !call) return said
  const { others, ...rest } = message
  return others.every(({ api }) => api === call.api) ? said : new SaidMessage(rest)
}
