import { sameNumbers } from '../../kit/index.ts'
import type { MessageNode, RoutedExperts, TokenRecord } from '../../schema/index.ts'

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

export function describeExperts({ shape, experts }: RoutedExperts): StoredExperts {
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

export function suffixAfter({ promptIds, ids }: PromptBase, prompt: Int32Array): Int32Array {
  return prompt.subarray(promptIds.length + ids.length)
}

function beginsWith(prompt: Int32Array, { promptIds, ids }: PromptBase): boolean {
  const middle = promptIds.length
  const end = middle + ids.length
  if (prompt.length < end || !sameNumbers(prompt.subarray(0, middle), promptIds)) return false
  return sameNumbers(prompt.subarray(middle, end), ids)
}
