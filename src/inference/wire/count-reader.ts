import type { BackendReply } from '../backend.ts'
import { malformedReply } from './broken-reply.ts'
import type { AnswerReader, StreamAssembler } from './dialect.ts'
import { isObject } from './foreign-json.ts'
import type { Source } from './source.ts'

interface CountWire {
  /** The name in vLLM and SGLang. */
  count?: unknown
  /** The name in the APIs of Anthropic and OpenAI. */
  input_tokens?: unknown
}

/** Reads how many tokens a prompt has. The number travels as the usage of a reply that says nothing. */
export class CountReader implements AnswerReader {
  readonly hasTokens = false
  readonly #source: Source

  constructor(source: Source) {
    this.#source = source
  }

  parse(body: unknown): BackendReply {
    const { count, input_tokens: input = count }: CountWire = isObject(body) ? body : {}
    if (typeof input !== 'number' || !Number.isSafeInteger(input) || input < 0) {
      throw malformedReply(this.#source, 'it has no number of tokens')
    }
    return {
      message: { role: 'assistant', content: null },
      finishReason: 'stop',
      usage: { calls: 0, input, cachedInput: 0, output: 0, reasoning: 0 },
    }
  }

  /** No server answers with a stream here; a stream is refused at its first event, or at its end. */
  assemble(): StreamAssembler {
    const refuse = (): never => {
      throw malformedReply(this.#source, 'it is a stream, and no number of tokens')
    }
    return { hasOutput: false, isComplete: false, onEvent: refuse, reply: refuse, partial: refuse }
  }
}
