import type { Recorder } from '../../inference/index.ts'
import { bytesOf, sameNumbers } from '../../kit/index.ts'
import type { MessageNode, RoutedExperts, TokenRecord } from '../../schema/index.ts'
import type { Journal, NodeEntry } from './journal.ts'

/** A session's recorder: puts its nodes into the journal under one attempt of one rollout. */
export class AttemptRecorder implements Recorder {
  readonly #journal: Journal
  readonly #rollout: string
  readonly #attempt: number
  readonly #bases = new PromptBases()

  constructor(journal: Journal, rollout: string, attempt: number) {
    this.#journal = journal
    this.#rollout = rollout
    this.#attempt = attempt
  }

  node(node: MessageNode, json: string): void {
    const { tokens } = node
    const experts = tokens?.routedExperts
    const promptIds = tokens?.promptIds
    const base = promptIds && this.#bases.find(promptIds)
    this.#bases.add(node, base)
    const entry: NodeEntry = {
      kind: 'node',
      rollout: this.#rollout,
      attempt: this.#attempt,
      seq: node.seq,
      parent: node.parent,
      hash: node.hash,
      message: json,
      sampled: node.sampled,
      at: node.at,
      meta: metaOf(node, base?.seq),
      ...(tokens && { ids: compact(tokens.ids), logprobs: compact(tokens.logprobs) }),
      ...(promptIds && { promptIds: compact(base ? restAfter(base, promptIds) : promptIds) }),
      ...(tokens?.version !== undefined && { version: tokens.version }),
      ...(experts && { routedExperts: compact(bytesOf(experts.experts)) }),
    }
    this.#journal.append(entry)
  }

  synced(): Promise<void> | undefined {
    return this.#journal.durable()
  }
}

/** The array itself if it is all of its buffer, or else a copy. */
function compact<Numbers extends Int32Array | Float32Array | Uint8Array>(numbers: Numbers): Numbers {
  return numbers.byteLength === numbers.buffer.byteLength ? numbers : (numbers.slice() as Numbers)
}

/** The JSON of a `NodeMeta`; undefined fields are left out. */
function metaOf({ call, tool, tools, discarded, tokens }: MessageNode, base: number | undefined): string | null {
  const versionSpans = tokens?.versionSpans
  const experts = tokens?.routedExperts
  const routedExperts = experts && describeExperts(experts)
  if (!call && !tool && !tools && !discarded && !versionSpans && !experts && base === undefined) return null
  return JSON.stringify({ call, tool, tools, discarded, versionSpans, promptAfter: base, routedExperts })
}

/** The JSON part of a node, beside its message and arrays. */
export interface NodeMeta
  extends Pick<MessageNode, 'call' | 'tool' | 'tools' | 'discarded'>, Pick<TokenRecord, 'versionSpans'> {
  /** `call` belongs to a reply that no client got. */
  readonly undelivered?: true
  /** The node whose prompt and reply this prompt begins with: only the rest of the prompt is stored. */
  readonly promptAfter?: number
  readonly routedExperts?: StoredExperts
}

/** The shape and type of routed experts: kept as JSON beside their bytes, which may be of several types. */
interface StoredExperts {
  readonly shape: readonly number[]
  readonly bytesEach: number
}

function describeExperts({ shape, experts }: RoutedExperts): StoredExperts {
  return { shape, bytesEach: experts.BYTES_PER_ELEMENT }
}

export function restoreExperts({ shape, bytesEach }: StoredExperts, bytes: ArrayBuffer): RoutedExperts {
  switch (bytesEach) {
    case 1:
      return { shape, experts: new Uint8Array(bytes) }
    case 2:
      return { shape, experts: new Int16Array(bytes) }
    default:
      return { shape, experts: new Int32Array(bytes) }
  }
}

export interface PromptBase {
  readonly seq: number
  readonly promptIds: Int32Array
  readonly ids: Int32Array
}

/** Enough for an agent and the sub-agents that work for it at the same time. Beyond that, a prompt is stored whole. */
const maxBases = 4

/**
 * A turn's prompt nearly always begins with the prompt and the reply of the turn before it. Then only the rest is stored,
 * with the number of that turn: a session takes space by its length, not by its square. Writer and reader add every node, so
 * both remember the same turns; a writer that starts in the middle remembers fewer.
 */
export class PromptBases {
  readonly #recent: PromptBase[] = []

  find(prompt: Int32Array): PromptBase | undefined {
    return this.#recent.findLast((base) => beginsWith(prompt, base))
  }

  named(seq: number): PromptBase | undefined {
    return this.#recent.find((base) => base.seq === seq)
  }

  /** The node replaces the one it goes on from: one conversation holds one prompt, however long it gets. */
  add(
    { seq, tokens, discarded }: Pick<MessageNode, 'seq' | 'tokens' | 'discarded'>,
    from: PromptBase | undefined,
  ): void {
    // No prompt goes on from a sample that was lost.
    if (!tokens?.promptIds || discarded) return
    if (from) this.#recent.splice(this.#recent.indexOf(from), 1)
    this.#recent.push({ seq, promptIds: tokens.promptIds, ids: tokens.ids })
    if (this.#recent.length > maxBases) this.#recent.shift()
  }
}

export function promptAfter({ promptIds, ids }: PromptBase, rest: Int32Array): Int32Array {
  const prompt = new Int32Array(promptIds.length + ids.length + rest.length)
  prompt.set(promptIds)
  prompt.set(ids, promptIds.length)
  prompt.set(rest, promptIds.length + ids.length)
  return prompt
}

function restAfter({ promptIds, ids }: PromptBase, prompt: Int32Array): Int32Array {
  return prompt.subarray(promptIds.length + ids.length)
}

function beginsWith(prompt: Int32Array, { promptIds, ids }: PromptBase): boolean {
  const middle = promptIds.length
  const end = middle + ids.length
  if (prompt.length < end || !sameNumbers(prompt.subarray(0, middle), promptIds)) return false
  return sameNumbers(prompt.subarray(middle, end), ids)
}
