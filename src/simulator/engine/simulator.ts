import { randomBytes, randomInt } from 'node:crypto'
import { MillraceError } from '../../errors/index.ts'
import { hash32, Resource } from '../../kit/index.ts'
import type { Delivery, ReplyHost, SimulatorAnswer } from './paced-reply.ts'
import { SimulatedEngine } from './simulated-engine.ts'
import { composeMessage, decide, limitMessage } from './compose.ts'
import { lossyTokens } from './lossy-tokens.ts'
import { expertsOf, logprobsOf, requestHash, type SimulatorRequest, type Vocabulary, words } from './tokens.ts'
import { type ApiRequest, withoutTokens } from '../apis/dialect-api.ts'
import { draw, drawFactor } from './draw.ts'
import { EmittedLog, type EmittedRecord, type EmittedReply } from './emitted-log.ts'
import { drawFault, faultError, type ForcedFault, overloadedError, rateLimited } from './faults.ts'
import { chatRequest, InProcessReply } from './in-process-reply.ts'
import { returnsTokenIds } from '../apis/token-fields.ts'
import { parseSimulatorOptions, type SimulatorOptions, type SimulatorSettings } from './options.ts'
import { PrefixCache } from './prefix-cache.ts'
import type { Backend, BackendReply, BackendRequest, RawReply, TokenAccess } from '../../apis/index.ts'

const slowFactor = 10
const trickleMs = 50
/** A paced stream sends what is due at most this often: more events cost more than they show. */
const tickMs = 20
const unpacedGroupSize = 8
const longContext = 1024 * 1024

/**
 * A model that needs no GPU, key or network. Its answers depend on seeds and content alone, never on what came before, unless
 * its seed is `random`; faults and latency depend on the number of the try as well.
 */
export class Simulator extends Resource implements Backend, ReplyHost {
  readonly name = 'simulator'
  readonly provider = 'millrace.simulator'
  readonly engine = new SimulatedEngine(() => this.#settings.maxRunning)
  readonly #prefixes = new PrefixCache()
  readonly #replies = new Set<InProcessReply>()
  readonly #emitted = new EmittedLog()
  #settings: SimulatorSettings
  #overloadFrom = 0
  #overloadUntil = 0
  #inFlight = 0
  /** A random part of reply ids, so that no other simulator, nor the next process, gives the same. */
  readonly #mark = randomBytes(4).toString('hex')
  #deliveries = 0

  constructor(options: SimulatorOptions = {}) {
    super()
    this.#settings = parseSimulatorOptions(options)
    this.#scheduleOverload()
  }

  get settings(): SimulatorSettings {
    return this.#settings
  }

  get vocabulary(): Vocabulary {
    return this.#settings.tokens === 'lossy' ? lossyTokens() : words
  }

  /** What a model of exact tokens asks. Missing if the tokens are words: those are in no tokenizer's files. */
  get tokenAccess(): TokenAccess | undefined {
    const { folder } = this.vocabulary
    if (folder === undefined) return undefined
    const facts = { path: 'in process', contextLength: this.shownContextLength, tokenizerFolder: folder }
    return {
      facts: async () => facts,
      tokenize: async (given) =>
        typeof given === 'string' ? this.vocabulary.encode(given) : this.vocabulary.prompt(given),
    }
  }

  /** The context length that a server names. Engines always have one, and a model of exact tokens needs it. */
  get shownContextLength(): number | undefined {
    const { contextLength, tokens } = this.#settings
    if (contextLength > 0) return contextLength
    return tokens === 'lossy' ? longContext : undefined
  }

  get weightVersion(): string | undefined {
    return this.#settings.weightVersion
  }

  /** Changes any options while it runs. The times of an overload given here count from now. */
  change(options: SimulatorOptions): void {
    this.#settings = parseSimulatorOptions(options, { base: this.#settings })
    if (Object.keys(options).some((key) => key === 'overload' || key.startsWith('overload.'))) this.#scheduleOverload()
  }

  /** Answers 503 to everything from now on, or no longer; the overload planned by the options is dropped. */
  setOverload(isOn: boolean): void {
    this.#overloadFrom = 0
    this.#overloadUntil = isOn ? Number.POSITIVE_INFINITY : 0
  }

  emitted(session?: string): { readonly replies: readonly EmittedReply[]; readonly dropped: number } {
    return { replies: this.#emitted.list(session), dropped: this.#emitted.dropped }
  }

  onEmitted(record: EmittedRecord): void {
    const { recordEmitted } = this.#settings
    if (recordEmitted > 0) this.#emitted.add(record, recordEmitted)
  }

  async send(request: BackendRequest): Promise<BackendReply> {
    this.throwIfClosed()
    request.signal.throwIfAborted()
    const written = request.body === undefined ? undefined : chatRequest(request, this.#settings.imitate)
    // A body itself says which token fields its client wants.
    const answer = this.enter(written?.request ?? request, request.retry)
    try {
      if (answer.kind === 'refusal') throw answer.error
      return this.#isInstant(request, answer) ? answer.reply : await this.#deliver(request, answer, written)
    } finally {
      this.leave()
    }
  }

  async countTokens({ messages, tools, signal }: BackendRequest): Promise<number> {
    this.throwIfClosed()
    signal.throwIfAborted()
    return this.vocabulary.promptTokens({ messages, tools })
  }

  /** Takes a place and decides the answer; `leave` must follow. For callers that deliver answers in another way than `send`. */
  enter(asked: SimulatorRequest, retry: number, forced?: ForcedFault): SimulatorAnswer {
    this.#inFlight += 1
    const request = this.#understood(asked)
    const settings = this.#settings
    if (forced === 'overload' || this.#isOverloaded) return refusal(overloadedError())
    if (settings.maxConcurrent > 0 && this.#inFlight > settings.maxConcurrent) {
      const message = `more than ${settings.maxConcurrent} requests at once (maxConcurrent); send fewer`
      return refusal(rateLimited(message, settings.retryAfterMs))
    }
    const base = hash32(...this.#seeds(request), requestHash(request))
    const tryBase = hash32(base, 'try', retry)
    const fault =
      forced === undefined || forced === 'slow' || forced === 'trickle' ? drawFault(settings.faults, tryBase) : forced
    if (fault === 'serverError') return refusal(faultError(fault))
    if (fault === 'rateLimit') {
      const message = 'the simulator answered 429, as faults.rateLimit asks; try later'
      return refusal(rateLimited(message, settings.retryAfterMs))
    }
    const { slow, trickle } = settings.faults
    const isSlow = forced === 'slow' || (slow > 0 && draw(tryBase, 'slow') < slow)
    const isTrickle = forced === 'trickle' || (trickle > 0 && draw(tryBase, 'trickle') < trickle)
    const { ttftMs, tokensPerSecond, spread } = settings
    const factor = isSlow ? slowFactor : 1
    const prompt = this.#prefilled(request)
    const latencyMs = ttftMs === 0 ? 0 : ttftMs * factor * drawFactor(tryBase, 'ttft', spread)
    const firstTokenMs = latencyMs + prompt.prefillMs * factor
    const made = this.#reply(request, { base, firstTokenMs, cachedInput: prompt.cached })
    if (made instanceof MillraceError) return refusal(made)
    const { reply, tokens } = made
    prompt.keep?.(reply)
    this.#deliveries += 1
    const drawnMs = tokensPerSecond === 0 ? 0 : (1000 / tokensPerSecond) * factor * drawFactor(tryBase, 'rate', spread)
    const tokenMs = isTrickle ? Math.max(trickleMs, drawnMs) : drawnMs
    return {
      kind: 'delivery',
      reply,
      tokens,
      firstTokenMs,
      totalMs: firstTokenMs + reply.usage.output * tokenMs,
      groupSize: tokenMs === 0 ? unpacedGroupSize : Math.max(1, Math.floor(tickMs / tokenMs)),
      fault,
      luck: 0.05 + 0.9 * draw(tryBase, 'break'),
      id: `${tryBase.toString(16).padStart(8, '0')}-${this.#mark}-${this.#deliveries}`,
    }
  }

  /** A prompt of ids as the conversation that it means. */
  #understood(request: SimulatorRequest): SimulatorRequest {
    const { vocabulary } = this
    const { promptText, prompt } = request
    const ids =
      request.promptIds ?? prompt?.ids ?? (promptText === undefined ? undefined : vocabulary.encode(promptText))
    if (!ids) return request
    const said = vocabulary.read?.(ids) ?? { messages: [{ role: 'user', content: promptText ?? ids.join(' ') }] }
    return { ...request, ...said, promptIds: ids }
  }

  /** What the prompt costs before the reply begins, and how much of it the prefix cache has. */
  #prefilled(request: SimulatorRequest): {
    readonly prefillMs: number
    readonly cached: number
    readonly keep?: (reply: BackendReply) => void
  } {
    const { prefillMs, prefixCacheTokens } = this.#settings
    if (prefixCacheTokens > 0) {
      const prompt = this.#prefixes.enter(request, this.vocabulary, prefixCacheTokens)
      const keep = ({ message, usage }: BackendReply): void => this.#prefixes.add(prompt, message, usage.output)
      return { prefillMs: (prefillMs * (prompt.promptTokens - prompt.cached)) / 1000, cached: prompt.cached, keep }
    }
    if (prefillMs === 0) return { prefillMs: 0, cached: 0 }
    const tokens = request.promptIds?.length ?? this.vocabulary.promptTokens(request)
    return { prefillMs: (prefillMs * tokens) / 1000, cached: 0 }
  }

  /** What all draws of a request begin with. At temperature 0 an engine does not sample, so a random seed changes nothing. */
  #seeds({ sampling }: SimulatorRequest): [own: number, ofRequest: number] {
    const { seed } = this.#settings
    if (seed !== 'random') return [seed, sampling.seed ?? 0]
    return [0, sampling.seed ?? (sampling.temperature === 0 ? 0 : randomInt(2 ** 32))]
  }

  leave(): void {
    this.#inFlight -= 1
  }

  get #isOverloaded(): boolean {
    if (this.#overloadUntil === 0) return false
    const now = performance.now()
    return now >= this.#overloadFrom && now < this.#overloadUntil
  }

  #scheduleOverload(): void {
    const { afterMs, forMs } = this.#settings.overload
    this.#overloadFrom = performance.now() + afterMs
    this.#overloadUntil = forMs === 0 ? 0 : this.#overloadFrom + forMs
  }

  #room(request: SimulatorRequest, inputTokens: number): number | MillraceError {
    const asked = request.sampling.maxTokens
    const { contextLength } = this.#settings
    if (contextLength === 0) return asked ?? Number.POSITIVE_INFINITY
    const left = contextLength - inputTokens
    if (left > 0 && (asked ?? 0) <= left) return asked ?? left
    const wanted = asked === undefined ? '' : ` and asks for ${asked} more`
    return new MillraceError(
      'context_length',
      `the maximum context length is ${contextLength} tokens; the request has ${inputTokens}${wanted}. Shorten it`,
      { data: { status: 400 } },
    )
  }

  #reply(
    request: SimulatorRequest,
    {
      base,
      firstTokenMs,
      cachedInput,
    }: { readonly base: number; readonly firstTokenMs: number; readonly cachedInput: number },
  ): Pick<Delivery, 'reply' | 'tokens'> | MillraceError {
    const { vocabulary } = this
    const inputTokens = request.promptIds?.length ?? vocabulary.promptTokens(request)
    const room = this.#room(request, inputTokens)
    if (room instanceof MillraceError) return room
    const settings = this.#settings
    const solved = decide(request, base, settings.skill)
    if (solved instanceof MillraceError) return solved
    const draft = composeMessage(solved, {
      base,
      sloppiness: settings.sloppiness,
      reasoning: settings.reasoning ? 'Let me see what is asked, and take it step by step.' : undefined,
    })
    const sampled = vocabulary === words ? undefined : vocabulary.sample(draft, base)
    const composed = limitMessage(draft, { maxTokens: room, sampled, begun: request.begun })
    const { message, finishReason, outputTokens, reasoningTokens } = composed
    const usage = {
      calls: 1,
      input: inputTokens,
      cachedInput,
      output: outputTokens,
      reasoning: reasoningTokens,
    }
    const isCaptured = request.captureTokens || settings.recordEmitted > 0
    if (!isCaptured) return { reply: { message, finishReason, usage, firstTokenMs }, tokens: composed.tokens }
    const tokens = composed.tokens ?? words.sample(message, base)
    const ids = Int32Array.from(tokens, (token) => token.id)
    const record = {
      promptIds: request.promptIds ?? vocabulary.prompt(request),
      ids,
      logprobs: logprobsOf(ids.length, base),
      ...(settings.weightVersion === undefined ? {} : { version: settings.weightVersion }),
      ...(settings.routedExperts === '' ? {} : { routedExperts: expertsOf(settings.routedExperts, ids.length, base) }),
    }
    return { reply: { message, finishReason, usage, tokens: record, firstTokenMs }, tokens }
  }

  /** Whether the reply can be returned at once, as most can in process: then it costs nothing more. */
  #isInstant(request: BackendRequest, { totalMs, fault }: Delivery): boolean {
    const { recordEmitted, imitate } = this.#settings
    const isPlain = request.sink === undefined && request.body === undefined && recordEmitted === 0
    return isPlain && totalMs === 0 && fault === undefined && !this.engine.isHolding && returnsTokenIds(imitate)
  }

  /** Delivers as a server of the imitated backend would; returns what a client of it would make of the answer. */
  async #deliver(request: BackendRequest, delivery: Delivery, written?: ApiRequest): Promise<BackendReply> {
    const { sink, signal } = request
    const { imitate } = this.#settings
    const apiRequest = written ?? chatRequest(request, imitate)
    const showsTokens = apiRequest.request.captureTokens && returnsTokenIds(imitate)
    const isStream = sink !== undefined && request.stream !== false
    const reply = new InProcessReply(this, {
      delivery,
      origin: { session: request.sessionId, replyId: apiRequest.replyId(delivery), api: 'chat' },
      signal,
      stream: isStream ? { sink, writer: apiRequest.stream(delivery) } : undefined,
      finish: (sample) => {
        const seen = showsTokens ? sample.reply : withoutTokens(sample.reply)
        if (isStream || request.body === undefined) return seen
        return { ...seen, raw: rawReply(apiRequest.whole(delivery, sample)) }
      },
    })
    this.#replies.add(reply)
    try {
      return await reply.run()
    } finally {
      this.#replies.delete(reply)
    }
  }

  protected override onClose(): void {
    for (const reply of this.#replies) reply.fail(this.closedSignal.reason)
  }
}

function rawReply(document: object): RawReply {
  return { text: JSON.stringify(document), document }
}

function refusal(error: MillraceError): SimulatorAnswer {
  return { kind: 'refusal', error }
}
