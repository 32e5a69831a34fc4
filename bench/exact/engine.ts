import { fileURLToPath } from 'node:url'
import type { Backend, BackendReply, BackendRequest, TokenAccess } from '../../src/apis/index.ts'
import type { Message } from '../../src/schema/index.ts'
import { loadTokenizer } from '../../src/tokenizer/index.ts'

const folder = fileURLToPath(new URL('../../assets/simulator', import.meta.url))
const { tokenizer } = await loadTokenizer(folder)

/** Some 16,000 characters at most, so that their ids are remembered: only new text is encoded in a turn. */
const messageTokens = 4000
const sentence = 'Line 7 of this file says something about rollouts, tokens and "quoted" words. '
const sentenceTokens = tokenizer.encode(sentence).length

/** A text of about so many tokens. */
export function textOf(tokens: number): string {
  return sentence.repeat(Math.max(1, Math.round(tokens / sentenceTokens)))
}

/** What a user says before the first turn: about so many tokens. */
export function historyOf(tokens: number): Message[] {
  const count = Math.ceil(tokens / messageTokens)
  return Array.from({ length: count }, () => ({ role: 'user', content: textOf(Math.min(tokens, messageTokens)) }))
}

/** An engine that answers at once, always with the same ids, so that a turn is what Millrace does in it. */
export class InstantEngine implements Backend {
  readonly name = 'engine'
  readonly tokenAccess: TokenAccess = {
    facts: async () => ({ path: '/generate', contextLength: 1_000_000, tokenizerFolder: folder }),
    tokenize: async (given) => (typeof given === 'string' ? tokenizer.encode(given) : undefined),
  }
  readonly #ids = tokenizer.encode(`${textOf(20)}<|im_end|>`)
  /** The length of the last prompt. */
  promptTokens = 0

  async send({ prompt }: BackendRequest): Promise<BackendReply> {
    this.promptTokens = prompt?.length ?? 0
    const ids = this.#ids.slice()
    return {
      message: { role: 'assistant', content: '' },
      finishReason: 'stop',
      usage: { calls: 1, input: this.promptTokens, cachedInput: 0, output: ids.length, reasoning: 0 },
      tokens: { ids, logprobs: new Float32Array(ids.length) },
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {}
}
