import { seededRandom } from '../../../src/kit/index.ts'
import type {
  CallRecord,
  DiscardReason,
  FinishReason,
  Message,
  MessageNode,
  TokenRecord,
  Usage,
  VersionSpan,
} from '../../../src/schema/index.ts'
import {
  AttemptRecorder,
  type Journal,
  type JournalEntry,
  type StoredReward,
  type StoredSession,
} from '../../../src/store/index.ts'

export interface RandomSession {
  readonly session: StoredSession
  readonly nodes: readonly MessageNode[]
  readonly rewards: readonly StoredReward[]
}

interface RandomSessionOptions {
  readonly seed: number
  readonly samples?: number
  /** Whether some replies come without tokens. */
  readonly gaps?: boolean
  readonly group?: string
  readonly tenant?: string
}

/**
 * A session as a busy agent leaves it: turns that go on, histories that were rewritten in the prompt or in a reply, prompts
 * that were cut, the same prompt asked twice, sub-agents with a prompt of their own, replies that were lost, weights that
 * changed on the way. The tokens are made up and have nothing to do with the text.
 */
export function randomSession(options: RandomSessionOptions): RandomSession {
  return new Writer(options).write()
}

const finishReasons: readonly FinishReason[] = ['stop', 'length', 'tool_calls']
const discardReasons: readonly DiscardReason[] = ['client_gone', 'truncated', 'failed']
const firstStart = 1_700_000_000_000

class Writer {
  readonly #options: RandomSessionOptions
  readonly #random: () => number
  readonly #id: string
  readonly #nodes: MessageNode[] = []
  /** Complete replies and what the model saw for them, tokens or not. */
  readonly #replies: { node: MessageNode; prompt: readonly number[]; ids: readonly number[] }[] = []
  #version = 1

  constructor(options: RandomSessionOptions) {
    this.#options = options
    this.#random = seededRandom(options.seed)
    this.#id = `session-${options.seed}`
  }

  write(): RandomSession {
    const { seed, samples = this.#below(14), group = `group-${seed % 7}`, tenant = 'default' } = this.#options
    for (let count = 0; count < samples; count += 1) {
      if (this.#chance(0.2)) this.#version += 1
      this.#step()
    }
    const data = { ...(seed % 3 > 0 && { taskId: `task-${seed % 5}` }), metadata: { seed } }
    const common = { id: this.#id, group, tenant, keyDigest: `digest-${seed}`, startedAt: firstStart, data }
    const session: StoredSession = this.#chance(0.7)
      ? { ...common, end: { at: firstStart + 9_999, why: this.#pick(['ended', 'expired'] as const) } }
      : common
    return { session, nodes: this.#nodes, rewards: this.#rewards() }
  }

  #step(): void {
    const base = this.#replies.length > 0 && this.#chance(0.85) ? this.#pick(this.#replies) : undefined
    if (base && this.#chance(0.1)) {
      // The same prompt once more.
      this.#sample(base.node.parent, base.prompt)
      return
    }
    // A client may also say something after any message, whoever said that one.
    const parent = base ? (this.#chance(0.1) ? this.#pick(this.#nodes).seq : base.node.seq) : null
    const leaf = this.#say(parent, base ? this.#below(3) : 1 + this.#below(2))
    const seen = base ? [...base.prompt, ...base.ids] : []
    this.#sample(leaf, [...this.#maybeRewritten(seen, base?.prompt.length ?? 0), ...this.#tokens(1 + this.#below(6))])
  }

  #maybeRewritten(seen: readonly number[], promptLength: number): readonly number[] {
    if (seen.length === 0 || this.#chance(0.7)) return seen
    switch (this.#below(3)) {
      case 0:
        return seen.with(this.#below(promptLength), -7)
      case 1:
        return promptLength < seen.length ? seen.with(promptLength + this.#below(seen.length - promptLength), -8) : seen
      default:
        return seen.slice(0, this.#below(seen.length))
    }
  }

  #say(parent: number | null, count: number): number | null {
    let last = parent
    for (let index = 0; index < count; index += 1) {
      const role = last === null ? 'system' : this.#pick(['user', 'assistant'] as const)
      last = this.#add({
        parent: last,
        message: { role, content: `said ${this.#nodes.length} ünd 🙂` },
        sampled: false,
      }).seq
    }
    return last
  }

  #sample(parent: number | null, prompt: readonly number[]): void {
    const ids = this.#tokens(this.#chance(0.05) ? 0 : 1 + this.#below(8))
    const hasTokens = !this.#options.gaps || this.#chance(0.7)
    const usage: Usage = { calls: 1, input: prompt.length, cachedInput: 0, output: ids.length, reasoning: 0 }
    const call: Omit<CallRecord, 'finishReason'> = {
      model: 'policy',
      backend: 'b1',
      usage,
      cost: this.#chance(0.5) ? 0.25 : null,
      tries: 1,
      ms: 12.5,
      waitMs: 0,
      api: this.#pick(['chat', 'responses', 'messages'] as const),
      ...(this.#chance(0.9) && { replyId: `reply-${this.#options.seed}-${this.#nodes.length}` }),
    }
    const message: Message = { role: 'assistant', content: `answer ${this.#nodes.length}` }
    const tokens = hasTokens ? { tokens: this.#tokenRecord(prompt, ids) } : {}
    if (this.#chance(0.15)) {
      const discarded = { ...call, why: this.#pick(discardReasons) }
      this.#add({ parent, message, sampled: true, discarded, ...tokens })
      return
    }
    const complete = { ...call, finishReason: this.#pick(finishReasons) }
    const node = this.#add({ parent, message, sampled: true, call: complete, ...tokens })
    this.#replies.push({ node, prompt, ids })
  }

  #tokenRecord(prompt: readonly number[], ids: readonly number[]): TokenRecord {
    const record = {
      promptIds: Int32Array.from(prompt),
      ids: Int32Array.from(ids),
      logprobs: Float32Array.from(ids, () => (this.#chance(0.03) ? -Infinity : -this.#random() * 5)),
    }
    if (this.#chance(0.2)) return record
    const version = String(this.#version)
    if (ids.length < 2 || this.#chance(0.6)) return { ...record, version }
    const versionSpans: VersionSpan[] = [{ from: 0, version }]
    for (let from = 1; from < ids.length; from += 1) {
      if (this.#chance(0.3)) versionSpans.push({ from, version: String((this.#version += 1)) })
    }
    const experts = {
      shape: [ids.length, 1, 2],
      experts: Uint8Array.from({ length: ids.length * 2 }, () => this.#below(8)),
    }
    return { ...record, version, versionSpans, ...(this.#chance(0.5) && { routedExperts: experts }) }
  }

  #rewards(): StoredReward[] {
    const rewards: StoredReward[] = this.#chance(0.6) ? [{ node: null, value: this.#below(3) / 2, at: firstStart }] : []
    for (const { node } of this.#replies) {
      if (this.#chance(0.25)) rewards.push({ node: node.seq, value: this.#below(5) - 2, at: firstStart })
    }
    return rewards
  }

  #add(parts: Omit<MessageNode, 'seq' | 'hash' | 'at'>): MessageNode {
    const seq = this.#nodes.length
    const node = { ...parts, seq, hash: `hash-${seq}`, at: firstStart + seq }
    this.#nodes.push(node)
    return node
  }

  #tokens(count: number): number[] {
    return Array.from({ length: count }, () => this.#below(50_000))
  }

  #below(limit: number): number {
    return Math.floor(this.#random() * limit)
  }

  #chance(probability: number): boolean {
    return this.#random() < probability
  }

  #pick<T>(list: readonly T[]): T {
    return list[this.#below(list.length)] as T
  }
}

/** Everything the journal gets for a session, in order. */
export function sessionEntries({ session, nodes, rewards }: RandomSession): JournalEntry[] {
  const { id, group, tenant, keyDigest, startedAt, data, end } = session
  const entries: JournalEntry[] = [
    { kind: 'session-start', session: id, group, tenant, keyDigest, at: startedAt, data: JSON.stringify(data) },
  ]
  const recorder = new AttemptRecorder(journalInto(entries), id, 0)
  for (const node of nodes) recorder.node(node, JSON.stringify(node.message))
  for (const { node, value, at } of rewards) entries.push({ kind: 'reward', session: id, node, value, at })
  if (end) entries.push({ kind: 'session-end', session: id, ...end })
  return entries
}

/** A journal that keeps what it is given. */
export function journalInto(entries: JournalEntry[]): Journal {
  return {
    append: (entry) => void entries.push(entry),
    appendAll: (more) => void entries.push(...more),
    pressure: 0,
    durable: () => undefined,
    durableSoon: () => undefined,
  }
}
