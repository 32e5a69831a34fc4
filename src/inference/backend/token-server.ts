import {
  completionsEndpoint,
  idsInCompletion,
  malformedReply,
  noTokenInput,
  readReportedError,
  reportedError,
  sglangGenerateEndpoint,
  type Source,
  type TokenAccess,
  type TokenizedConversation,
  type TokenEndpoint,
  TokenPrompt,
  type TokenServerFacts,
  vllmGenerateEndpoint,
  wasBroken,
} from '../../apis/index.ts'
import { isJsonList, isJsonObject, type JsonObject } from '../../schema/index.ts'
import { isMissing, type ShortAnswer } from './short-request.ts'

type Ask = (path: string, signal: AbortSignal, body?: string | Buffer) => Promise<ShortAnswer>

interface TokenServerOptions {
  readonly ask: Ask
  /** The path that those of OpenAI's API begin with, and that of the server's own paths. */
  readonly base: string
  readonly root: string
  readonly source: Source
  readonly signal: AbortSignal
}

interface Found {
  readonly endpoint: TokenEndpoint
  readonly facts: TokenServerFacts
}

/** Finds out how a server takes prompts as token ids, once, by sending it a tiny one. A failure is not remembered. */
export class TokenServer implements TokenAccess {
  readonly #options: TokenServerOptions
  #found: Promise<Found> | undefined

  constructor(options: TokenServerOptions) {
    this.#options = options
  }

  async facts(): Promise<TokenServerFacts> {
    const { facts } = await this.#find()
    return facts
  }

  async endpoint(): Promise<TokenEndpoint> {
    const { endpoint } = await this.#find()
    return endpoint
  }

  pathOf({ path, isBelowRoot }: TokenEndpoint): string {
    return (isBelowRoot ? this.#options.root : this.#options.base) + path
  }

  async tokenize(given: string | TokenizedConversation, signal: AbortSignal): Promise<Int32Array | undefined> {
    const { ask, root, source } = this.#options
    const asked = typeof given === 'string' ? { prompt: given } : conversationFields(given)
    const body = { model: source.model, ...asked, add_special_tokens: false }
    const { status, document } = await ask(`${root}/tokenize`, signal, JSON.stringify(body))
    // A busy server is asked again. It may refuse the conversations with any status: templates do.
    if (typeof given === 'string') throwIfBusy(source, status, document)
    const ids = status < 300 && isJsonObject(document) ? document['tokens'] : undefined
    return isJsonList(ids) && ids.every((id) => Number.isInteger(id)) ? Int32Array.from(ids, Number) : undefined
  }

  #find(): Promise<Found> {
    this.#found ??= this.#search().catch((error: unknown) => {
      this.#found = undefined
      throw error
    })
    return this.#found
  }

  async #search(): Promise<Found> {
    const { source } = this.#options
    const [listing, info] = await Promise.all([
      this.#get('base', '/models'),
      this.#sglangInfo('/get_model_info', '/model_info'),
    ])
    const entry = entryOf(listing, source.model)
    const contextLength = firstNumber(entry['max_model_len'], entry['context_length'])
    const sglangFolder = firstText(info['tokenizer_path'], info['model_path'])
    if (sglangFolder !== undefined && (await this.#answers(sglangGenerateEndpoint))) {
      const length = contextLength ?? (await this.#sglangContext())
      return this.#as(sglangGenerateEndpoint, { contextLength: length, tokenizerFolder: sglangFolder })
    }
    const facts = { contextLength, tokenizerFolder: firstText(entry['root']) }
    if (await this.#answers(vllmGenerateEndpoint)) return this.#as(vllmGenerateEndpoint, facts)
    const completions = completionsEndpoint('names')
    const place = idsInCompletion(await this.#answers(completions))
    if (place === 'names') return this.#as(completions, facts)
    const withField = completionsEndpoint('field')
    if (idsInCompletion(await this.#answers(withField)) === 'field') return this.#as(withField, facts)
    throw noTokenInput(source)
  }

  #as(endpoint: TokenEndpoint, facts: Omit<TokenServerFacts, 'path'>): Found {
    return { endpoint, facts: { path: this.pathOf(endpoint), ...facts } }
  }

  /** The answer to a prompt of one token; undefined if the server has no such path, or refuses such a request. */
  async #answers(endpoint: TokenEndpoint): Promise<unknown> {
    const { ask, source, signal } = this.#options
    const prompt = TokenPrompt.of(Int32Array.of(1))
    const request = { messages: [], tools: [], sampling: { maxTokens: 1 }, captureTokens: true, sessionId: 'probe' }
    const body = endpoint.render(request, { prompt, model: source.model })
    const { status, document } = await ask(this.pathOf(endpoint), signal, body)
    if (status < 300) return this.#readable(document)
    const failure = reportedError(source, { status, reported: readReportedError(document) })
    if (isMissing(status) || status === 403 || !(failure.retryable || failure.code === 'model_auth')) return undefined
    throw failure
  }

  /** An answer that was spoiled on its way, or that the engine broke off, must not look like one of a server that takes no ids. */
  #readable(document: unknown): unknown {
    if (wasBroken(document)) throw malformedReply(this.#options.source, 'the engine did not end it')
    if (typeof document === 'string' && document.startsWith('{')) {
      throw malformedReply(this.#options.source, 'it is not JSON')
    }
    return isJsonObject(document) ? document : undefined
  }

  async #sglangContext(): Promise<number | undefined> {
    return firstNumber((await this.#sglangInfo('/get_server_info', '/server_info'))['context_length'])
  }

  /** SGLang has given these paths shorter names, and keeps the old ones for a while. */
  async #sglangInfo(old: string, later: string): Promise<JsonObject> {
    const info = await this.#get('root', old)
    return Object.keys(info).length > 0 ? info : await this.#get('root', later)
  }

  async #get(from: 'base' | 'root', path: string): Promise<JsonObject> {
    const { ask, signal, base, root, source } = this.#options
    const { status, document } = await ask((from === 'base' ? base : root) + path, signal)
    throwIfBusy(source, status, document)
    return status < 300 && isJsonObject(document) ? document : {}
  }
}

function throwIfBusy(source: Source, status: number, document: unknown): void {
  if (status < 300 || isMissing(status)) return
  const failure = reportedError(source, { status, reported: readReportedError(document) })
  if (failure.retryable) throw failure
}

function conversationFields({ messages, tools }: TokenizedConversation): object {
  return { messages, ...(tools.length > 0 && { tools }), add_generation_prompt: true }
}

function entryOf({ data }: JsonObject, model: string): JsonObject {
  const entries = isJsonList(data) ? data.filter((each) => isJsonObject(each)) : []
  return entries.find(({ id }) => id === model) ?? entries[0] ?? {}
}

function firstNumber(...values: readonly unknown[]): number | undefined {
  return values.find((value): value is number => typeof value === 'number' && value > 0)
}

function firstText(...values: readonly unknown[]): string | undefined {
  return values.find((value): value is string => typeof value === 'string' && value !== '')
}
