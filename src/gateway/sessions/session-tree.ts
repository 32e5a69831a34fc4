import { crc32 } from 'node:zlib'
import { chainHash, type Recorder } from '../../inference/index.ts'
import type { AssistantMessage, CallRecord, Message, MessageNode, ToolCall } from '../../schema/index.ts'
import { bytesOf } from '../../kit/index.ts'
import { MessageKey, withRecordedArguments } from '../../endpoint/index.ts'

export type ReplyFacts = Pick<MessageNode, 'call'> & { readonly lacksTokens: boolean }

type SampleOrigin = Pick<MessageNode, 'call' | 'discarded' | 'tokens'>

/** The known beginning of a conversation: so many messages, and the node of the last of them. */
export interface KnownPrefix {
  readonly count: number
  readonly node: TreeNode
  /** The nodes of messages whose tool calls the client has written in another spelling, by their place. */
  readonly respelled?: ReadonlyMap<number, TreeNode>
}

export interface Match {
  readonly known: number
  readonly end: TreeNode
  readonly before: number
  readonly keys: readonly MessageKey[]
  readonly respelled: ReadonlyMap<number, TreeNode>
}

/** The most bytes of memory for a node. With tool calls it is 361 in plain conversations, 446 with forks, 496 with other spellings. */
const bytesPerNode = 496

/** Bytes of memory for the name of a reply or of an item, or for a digest, with its entry in a table. Measured over 400,000 of 54 characters. */
const bytesPerName = 140

/**
 * The messages of one session. Of a request's conversation the known part is found, and only the rest is appended. A client that
 * rewrote its history leaves the known path there, so that forks and sub-agents need no rules of their own.
 */
export class SessionTree {
  readonly #recorder: Recorder
  readonly #root = new TreeNode(-1, '', { digest: '', looseDigest: undefined })
  /** The nodes of conversations, at their numbers. Lost samples have none. */
  readonly #nodes: (TreeNode | undefined)[] = []
  /** Replies by the client's name for them, and by that of an item of theirs. */
  readonly #replies = new Map<string, TreeNode>()
  readonly #items = new Map<string, TreeNode>()
  /** Calls whose outputs came in the same reply. */
  readonly #servedCalls = new Set<string>()
  #size = 0
  /** How many digests of replies as Claude Code may send them back have an entry: ten of a reply at most. */
  #changed = 0

  constructor(recorder: Recorder) {
    this.#recorder = recorder
  }

  get size(): number {
    return this.#size
  }

  get bytes(): number {
    const names = this.#replies.size + this.#items.size + this.#servedCalls.size + this.#changed
    return this.#size * bytesPerNode + names * bytesPerName
  }

  restore(node: MessageNode): void {
    this.#size = node.seq + 1
    const reply = replyIn(node)
    if (node.discarded && !reply) return
    const key = deliveredKey(node.message, reply)
    const restored = new TreeNode(node.seq, node.hash, key)
    const parent = node.parent === null ? this.#root : this.#nodes[node.parent]
    if (parent) {
      this.#enter(parent, restored, { isReply: reply !== undefined })
      if (reply) this.#enterChanged(parent, key, reply)
    }
    this.#name(restored, reply)
  }

  /** Finds the known part of a conversation. */
  match(messages: readonly Message[], before: KnownPrefix = { count: 0, node: this.#root }, names = noNames): Match {
    const keys = messages.slice(before.count).map((message) => new MessageKey(message))
    const respelled = new Map(before.respelled)
    let known = before.count
    let end = before.node
    for (const [index, key] of keys.entries()) {
      const next = this.#nodeAfter(end, key, { name: names.get(known), following: keys[index + 1] })
      if (!next) break
      if (!next.isSpelledLike(key)) respelled.set(known, next)
      end = next
      known += 1
    }
    return { known, end, before: before.count, keys, respelled }
  }

  /** The conversation with tool calls' arguments as they were sampled, so that the model sees the tokens that it wrote. */
  inRecordedSpelling(
    messages: readonly Message[],
    { respelled }: Match,
    recorded: ReadonlyMap<number, readonly ToolCall[]>,
  ): readonly Message[] {
    if (respelled.size === 0) return messages
    const restored = [...messages]
    for (const [place, { seq }] of respelled) {
      const message = messages[place]
      const calls = recorded.get(seq)
      if (calls && message?.role === 'assistant') restored[place] = withRecordedArguments(message, calls)
    }
    return restored
  }

  /** Records the new messages of a conversation, and returns the node it ends with. Undefined if it is empty. */
  append(messages: readonly Message[], { known, end, before, keys }: Match): TreeNode | undefined {
    let last = end
    for (let index = known; index < messages.length; index += 1) {
      const key = keys[index - before] as MessageKey
      const { seq, hash } = this.#record(last, key.message)
      const node = new TreeNode(seq, hash, key)
      node.sum = last.sum
      this.#enter(last, node, { isReply: false })
      last = node
    }
    return last === this.#root ? undefined : last
  }

  /** Records a sample after `parent`. A lost one is recorded, too, but is part of no conversation. */
  addSample(parent: TreeNode | undefined, message: AssistantMessage, origin: SampleOrigin): TreeNode {
    const before = parent ?? this.#root
    const { seq, hash } = this.#record(before, message, origin)
    const key = deliveredKey(message, origin.call)
    const node = new TreeNode(seq, hash, key)
    if (origin.discarded) return node
    this.#enter(before, node, { isReply: true })
    this.#enterChanged(before, key, origin.call)
    this.#name(node, origin.call)
    return node
  }

  /** Enters the names of a reply, and of its items: clients of Responses may send either. */
  #name(node: TreeNode, call: CallRecord | undefined): void {
    if (call?.replyId === undefined) return
    this.#replies.set(call.replyId, node)
    for (const ids of Object.values(call.itemIds ?? {})) for (const id of ids) this.#items.set(id, node)
    if (call.api !== 'responses' || call.original?.api !== 'responses') return
    for (const { id, type, call_id: callId } of call.original.output) {
      if (typeof id === 'string') this.#items.set(id, node)
      const isOutput = typeof type === 'string' && type.endsWith('_call_output')
      if (isOutput && typeof callId === 'string') this.#servedCalls.add(callId)
    }
  }

  replyNamed(replyId: string): TreeNode | undefined {
    return this.#replies.get(replyId)
  }

  nodeAt(seq: number): TreeNode | undefined {
    return this.#nodes[seq]
  }

  hasOutputOf(callId: string): boolean {
    return this.#servedCalls.has(callId)
  }

  /** The node of a message after `parent`. Of equal ones: the one that is named, else continued already, else the latest that a client got. */
  #nodeAfter(parent: TreeNode, key: MessageKey, { name = '', following }: Hints): TreeNode | undefined {
    const equal = this.#followersOf(parent, key)
    if (equal.length < 2) return equal[0]
    const named = this.#replies.get(name) ?? this.#items.get(name)
    return (
      equal.find((node) => node === named) ??
      (following && equal.findLast((node) => this.#followersOf(node, following).length > 0)) ??
      equal.findLast(({ undelivered }) => !undelivered) ??
      equal.at(-1)
    )
  }

  /** The nodes after `parent` that say what the message does, the latest last. */
  #followersOf(parent: TreeNode, key: MessageKey): readonly TreeNode[] {
    const found = parent.following(key.digest)
    if (found.length > 0) return found
    return key.looseDigest === undefined ? none : parent.following(key.looseDigest)
  }

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

  #enter(parent: TreeNode, node: TreeNode, { isReply }: { readonly isReply: boolean }): void {
    node.depth = parent.depth + 1
    node.reply = isReply ? node : parent.reply
    this.#nodes[node.seq] = node
    parent.add(node)
  }

  /** Lets a reply be found as Claude Code sends it back, which changes calls. Clients of other APIs are not taken for it. */
  #enterChanged(parent: TreeNode, key: MessageKey, call: CallRecord | undefined): void {
    const { looseDigest } = key
    if (call?.api !== 'messages' || looseDigest === undefined) return
    for (const digest of key.changedDigests()) if (parent.addSpelling(digest, looseDigest)) this.#changed += 1
  }
}

const none: readonly TreeNode[] = []
const noNames: ReadonlyMap<number, string> = new Map()

/** What tells equal messages apart: the client's name for its own, and the message that follows it. */
interface Hints {
  readonly name: string | undefined
  readonly following: MessageKey | undefined
}

/** The key of a reply as its client was sent it: parts that only the model's API can say are not sent to clients of another one. */
function deliveredKey(message: Message, call: CallRecord | undefined): MessageKey {
  if (message.role !== 'assistant' || !message.others || !call) return new MessageKey(message)
  const { others, ...rest } = message
  return new MessageKey(others.every(({ api }) => api === call.api) ? message : rest)
}

type Digests = Pick<MessageKey, 'digest' | 'looseDigest'>

/** A message in a session's tree: most are followed by one other, held in a field; only a node with several has a table. */
export class TreeNode {
  readonly seq: number
  readonly hash: string
  /** Set for a complete reply that no client got: it counts as lost until a client gets or continues it after all. */
  undelivered: ReplyFacts | undefined
  /** The tokens of the last reply up to here that has them. Not known of nodes that were read back. */
  sum: TokenChecksum | undefined
  /** The number of messages from the beginning of the conversation up to this one. */
  depth = 0
  /** The last complete reply up to here. */
  reply: TreeNode | undefined
  readonly #digest: string
  readonly #looseDigest: string | undefined
  #only: TreeNode | undefined
  /** The nodes that follow, by their digests, once there are several; equal ones share a list. */
  #table: Map<string, TreeNode[]> | undefined

  constructor(seq: number, hash: string, { digest, looseDigest }: Digests) {
    this.seq = seq
    this.hash = hash
    this.#digest = digest
    this.#looseDigest = looseDigest
  }

  /** The nodes that follow and have this digest, loose or not, the latest last. */
  following(digest: string): readonly TreeNode[] {
    if (this.#table) return this.#table.get(digest) ?? []
    const only = this.#only
    return only && (only.#digest === digest || only.#looseDigest === digest) ? [only] : []
  }

  get isContinued(): boolean {
    return this.#only !== undefined || this.#table !== undefined
  }

  add(node: TreeNode): void {
    if (!this.#only && !this.#table) {
      this.#only = node
      return
    }
    const table = this.#wholeTable()
    const equal = table.get(node.#looseDigest ?? node.#digest)
    if (equal) equal.push(node)
    else node.#enterInto(table)
  }

  /** Lets the nodes of a loose digest be found by the digest of another spelling. False if that is known to the node. */
  addSpelling(digest: string, looseDigest: string): boolean {
    if (this.following(digest).length > 0) return false
    const table = this.#wholeTable()
    const nodes = table.get(looseDigest)
    if (nodes) table.set(digest, nodes)
    return nodes !== undefined
  }

  isSpelledLike({ digest }: Pick<Digests, 'digest'>): boolean {
    return this.#digest === digest
  }

  #wholeTable(): Map<string, TreeNode[]> {
    if (this.#table) return this.#table
    this.#table = new Map()
    if (this.#only) this.#only.#enterInto(this.#table)
    this.#only = undefined
    return this.#table
  }

  #enterInto(table: Map<string, TreeNode[]>): void {
    const nodes: TreeNode[] = [this]
    table.set(this.#digest, nodes)
    if (this.#looseDigest !== undefined) table.set(this.#looseDigest, nodes)
  }
}

export function replyIn({ call, discarded }: Pick<MessageNode, 'call' | 'discarded'>): CallRecord | undefined {
  if (call || discarded?.finishReason === undefined) return call
  const { why: _nobody, finishReason, ...record } = discarded
  return { ...record, finishReason }
}

/**
 * A checksum of a prompt and its reply. It tells whether a later prompt begins with both, without keeping their tokens: one pass
 * over the later prompt, some 10 µs for 10,000 tokens. A change of one token is always noticed, any other with 1 - 2^-32.
 */
export interface TokenChecksum {
  readonly count: number
  /** Signed, because V8 then keeps it in the object itself. */
  readonly crc: number
}

/**
 * How the prompt of a later turn begins. `exact`: with the tokens of the prompt and the reply before it. `drifted`: with others,
 * because the client or the chat template wrote the history anew.
 */
export type TurnTokens = 'exact' | 'drifted'

/** Sums a turn up. `earlier`: the sum of the nearest reply before it that has tokens. */
export function summedTurn(
  { promptIds, ids }: { readonly promptIds: Int32Array; readonly ids: Int32Array },
  earlier: TokenChecksum | undefined,
): { readonly sum: TokenChecksum; readonly turn: TurnTokens | undefined } {
  // A prompt that is shorter than the earlier turn has another count, whatever its checksum.
  const begun = sumOf(promptIds.subarray(0, earlier?.count ?? 0), nothing)
  const isExact = begun.count === earlier?.count && begun.crc === earlier.crc
  const sum = sumOf(ids, sumOf(promptIds.subarray(begun.count), begun))
  return { sum, turn: earlier && (isExact ? 'exact' : 'drifted') }
}

const nothing: TokenChecksum = { count: 0, crc: 0 }

function sumOf(tokens: Int32Array, { count, crc }: TokenChecksum): TokenChecksum {
  return { count: count + tokens.length, crc: crc32(bytesOf(tokens), crc >>> 0) | 0 }
}
