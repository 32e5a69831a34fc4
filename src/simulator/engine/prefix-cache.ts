import type { Message } from '../../schema/index.ts'
import { type Conversation, hashMessage, toolsHash, type Vocabulary } from './tokens.ts'

interface CachedPrompt {
  /** How many tokens of the prompt were known. */
  readonly cached: number
  readonly promptTokens: number
  /** The key of the whole prompt. */
  readonly end: number
}

/**
 * The prompts and replies that an engine has computed, message by message: a prompt is known as far as an earlier one had the same
 * messages. The entries used least recently are dropped first, and of a conversation its last messages.
 */
export class PrefixCache {
  /** The tokens of a message by the hash of the conversation that ends with it, the least recently used one first. */
  readonly #known = new Map<number, number>()
  #tokens = 0

  /** Looks a prompt up. From then on all of it is known. */
  enter({ messages, tools }: Conversation, vocabulary: Vocabulary, maxTokens: number): CachedPrompt {
    const overhead = vocabulary.promptTokens({ messages: [], tools })
    let end = toolsHash(tools)
    let [cached, promptTokens, isKnown] = [0, overhead, true]
    const used: [key: number, tokens: number][] = []
    for (const message of messages) {
      end = hashMessage(end, message)
      const known = this.#known.get(end)
      isKnown &&= known !== undefined
      const tokens = known ?? tokensOf(message, vocabulary)
      if (isKnown) cached += tokens
      promptTokens += tokens
      used.push([end, tokens])
    }
    for (const [key, tokens] of used.toReversed()) this.#keep(key, tokens)
    this.#trim(maxTokens)
    return { cached: cached > 0 ? cached + overhead : 0, promptTokens, end }
  }

  /** The reply to a prompt is known, too: it was computed here. As a message, it has a marker before its tokens. */
  add({ end }: Pick<CachedPrompt, 'end'>, reply: Message, tokens: number): void {
    this.#keep(hashMessage(end, reply), tokens + 1)
  }

  #keep(key: number, tokens: number): void {
    this.#tokens += tokens - (this.#known.get(key) ?? 0)
    this.#known.delete(key)
    this.#known.set(key, tokens)
  }

  #trim(maxTokens: number): void {
    for (const [key, tokens] of this.#known) {
      if (this.#tokens <= maxTokens) return
      this.#known.delete(key)
      this.#tokens -= tokens
    }
  }
}

/** Without the marker with which a reply begins. */
function tokensOf(message: Message, vocabulary: Vocabulary): number {
  return vocabulary.promptTokens({ messages: [message], tools: [] }) - 1
}
