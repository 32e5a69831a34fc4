import type { Backend, BackendReply, BackendRequest, TokenAccess } from '../../../src/apis/index.ts'
import type { MillraceError } from '../../../src/errors/index.ts'
import type { FinishReason } from '../../../src/schema/index.ts'
import { loadTokenizer } from '../../../src/tokenizer/index.ts'
import { simulatorFolder } from './simulator-folder.ts'

const { tokenizer } = await loadTokenizer(simulatorFolder)

export interface Sample {
  /** Encoded piece by piece, so that the ids need not be those of the whole text. */
  readonly pieces: readonly string[]
  readonly finishReason?: FinishReason
  /** What the engine says that its prompt was. */
  readonly promptIds?: Int32Array
  /** How many tokens it says that its prompt had; 0 if it does not say. */
  readonly input?: number
}

interface EngineFacts {
  readonly contextLength?: number | undefined
  readonly folder?: string
  /** Errors that the first requests for facts fail with. */
  readonly failures?: MillraceError[]
  readonly tokenize?: (text: string) => Int32Array | undefined
}

/** An engine that takes prompts of ids and answers with given samples, in order. */
export class ScriptedEngine implements Backend {
  readonly name = 'engine'
  readonly requests: BackendRequest[] = []
  readonly #samples: Sample[]
  readonly #facts: EngineFacts

  constructor(samples: readonly Sample[], facts: EngineFacts = {}) {
    this.#samples = [...samples]
    this.#facts = facts
  }

  get tokenAccess(): TokenAccess {
    const { contextLength = 4096, folder = simulatorFolder, failures = [], tokenize } = this.#facts
    return {
      facts: async () => {
        const failure = failures.shift()
        if (failure) throw failure
        const known = 'contextLength' in this.#facts ? this.#facts.contextLength : contextLength
        return { path: '/generate', contextLength: known, tokenizerFolder: folder }
      },
      // Like SGLang, it takes no conversations.
      tokenize: async (given) =>
        typeof given === 'string' ? (tokenize ?? ((text) => tokenizer.encode(text)))(given) : undefined,
    }
  }

  /** The prompt of the last request as text. */
  get prompt(): string {
    return tokenizer.decode(this.promptIds)
  }

  get promptIds(): Int32Array {
    return this.requests.at(-1)?.prompt?.ids ?? new Int32Array()
  }

  async send(request: BackendRequest): Promise<BackendReply> {
    this.requests.push(request)
    const {
      pieces,
      finishReason = 'stop',
      promptIds,
      input = 0,
    } = this.#samples.shift() ?? { pieces: ['Fine.<|im_end|>'] }
    const ids = idsOf(pieces)
    return {
      message: { role: 'assistant', content: '' },
      finishReason,
      usage: { calls: 1, input, cachedInput: 0, output: ids.length, reasoning: 0 },
      tokens: { ids, logprobs: new Float32Array(ids.length), ...(promptIds && { promptIds }) },
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {}
}

export function idsOf(pieces: readonly string[]): Int32Array {
  return Int32Array.from(pieces.flatMap((piece) => Array.from(tokenizer.encode(piece))))
}
