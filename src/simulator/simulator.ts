import { MillraceError } from '../errors/index.ts'
import { AbortScope, hash32, maxTimerMs, Resource, sleep } from '../kit/index.ts'
import type { Answer, Delivery } from './_answer.ts'
import { composeMessage, limitMessage, wholeTokens } from './_compose.ts'
import { decide } from './_decide.ts'
import { digest, type Digest } from './_digest.ts'
import { draw, drawFactor } from './_draw.ts'
import { drawFault, faultError, overloadedError, rateLimited, type ForcedFault } from './_faults.ts'
import { expertsOf, logprobsOf, promptIds } from './_token-record.ts'
import { parseSimulatorOptions, type SimulatorOptions, type SimulatorSettings } from './simulator-options.ts'
import type { Backend, BackendReply, BackendRequest, ModelRequest } from '../inference/index.ts'

/** About 25 days: as good as never. */
const neverMs = maxTimerMs
const slowFactor = 10

/**
 * A model that needs no GPU, key or network. What it answers depends on its seed, the request's seed and what the request
 * says, never on when it came or what came before; faults and latency depend on the number of the try as well.
 */
export class Simulator extends Resource implements Backend {
  readonly name = 'simulator'
  readonly #waiting = new Set<AbortScope>()
  #settings: SimulatorSettings
  #overloadFrom = 0
  #overloadUntil = 0
  #inFlight = 0

  constructor(options: SimulatorOptions = {}) {
    super()
    this.#settings = parseSimulatorOptions(options)
    this.#scheduleOverload()
  }

  get settings(): SimulatorSettings {
    return this.#settings
  }

  /** Changes any options while it runs. An overload given here counts from now. */
  change(options: SimulatorOptions): void {
    this.#settings = parseSimulatorOptions(options, this.#settings)
    if (Object.keys(options).some((key) => key === 'overload' || key.startsWith('overload.'))) this.#scheduleOverload()
  }

  /** Answers 503 to everything from now on, or no longer; what the options planned is forgotten. */
  setOverload(isOn: boolean): void {
    this.#overloadFrom = 0
    this.#overloadUntil = isOn ? Number.POSITIVE_INFINITY : 0
  }

  async send(request: BackendRequest): Promise<BackendReply> {
    this.throwIfClosed()
    request.signal.throwIfAborted()
    const answer = this.enter(request, request.retry)
    try {
      if (answer.kind === 'refusal') throw answer.error
      const { fault, totalMs } = answer
      const waitMs = fault === 'hang' ? neverMs : fault === 'cut' ? totalMs * answer.luck : totalMs
      if (waitMs > 0) await this.#wait(waitMs, request.signal)
      if (fault === 'cut' || fault === 'malformed') throw faultError(fault)
      return answer.reply
    } finally {
      this.leave()
    }
  }

  /** Takes a place and decides the answer; `leave` must follow. For whoever delivers answers in another way than `send`. */
  enter(request: ModelRequest, retry: number, forced?: ForcedFault): Answer {
    this.#inFlight += 1
    const settings = this.#settings
    if (forced === 'overload' || this.#isOverloaded) return refusal(overloadedError())
    if (settings.maxConcurrent > 0 && this.#inFlight > settings.maxConcurrent) {
      const message = `more than ${settings.maxConcurrent} requests at once (maxConcurrent); send fewer`
      return refusal(rateLimited(message, settings.retryAfterMs))
    }
    const said = digest(request)
    const base = hash32(settings.seed, request.sampling.seed ?? 0, said.hash)
    const tryBase = hash32(base, 'try', retry)
    const fault = forced === undefined || forced === 'slow' ? drawFault(settings.faults, tryBase) : forced
    if (fault === 'serverError') return refusal(faultError(fault))
    if (fault === 'rateLimit') {
      const message = 'the simulator answered 429, as faults.rateLimit asks; try later'
      return refusal(rateLimited(message, settings.retryAfterMs))
    }
    const isSlow = forced === 'slow' || (settings.faults.slow > 0 && draw(tryBase, 'slow') < settings.faults.slow)
    const { ttftMs, tokensPerSecond, spread } = settings
    const factor = isSlow ? slowFactor : 1
    const firstTokenMs = ttftMs === 0 ? 0 : ttftMs * factor * drawFactor(tryBase, 'ttft', spread)
    const made = this.#reply(request, { said, base, firstTokenMs })
    if (made instanceof MillraceError) return refusal(made)
    const { reply, cutTokens } = made
    const tokenMs = tokensPerSecond === 0 ? 0 : (1000 / tokensPerSecond) * factor * drawFactor(tryBase, 'rate', spread)
    return {
      kind: 'delivery',
      reply,
      cutTokens,
      firstTokenMs,
      totalMs: firstTokenMs + reply.usage.output * tokenMs,
      fault,
      luck: 0.05 + 0.9 * draw(tryBase, 'break'),
      version: settings.weightVersion,
      id: tryBase.toString(16).padStart(8, '0'),
    }
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

  /** How many tokens the reply may have. */
  #room(request: ModelRequest, said: Digest): number | MillraceError {
    const asked = request.sampling.maxTokens
    const { contextLength } = this.#settings
    if (contextLength === 0) return asked ?? Number.POSITIVE_INFINITY
    const left = contextLength - said.inputTokens
    if (left > 0 && (asked ?? 0) <= left) return asked ?? left
    const wanted = asked === undefined ? '' : ` and asks for ${asked} more`
    return new MillraceError(
      'context_length',
      `the maximum context length is ${contextLength} tokens; the request has ${said.inputTokens}${wanted}. Shorten it`,
      { data: { status: 400 } },
    )
  }

  #reply(
    request: ModelRequest,
    drawn: { readonly said: Digest; readonly base: number; readonly firstTokenMs: number },
  ): Pick<Delivery, 'reply' | 'cutTokens'> | MillraceError {
    const { said, base, firstTokenMs } = drawn
    const room = this.#room(request, said)
    if (room instanceof MillraceError) return room
    const settings = this.#settings
    const move = decide(request, base, settings.skill)
    if (move instanceof MillraceError) return move
    const draft = composeMessage(move, {
      base,
      sloppiness: settings.sloppiness,
      reasoning: settings.reasoning ? 'Let me see what is asked, and take it step by step.' : undefined,
    })
    const { message, finishReason, outputTokens, reasoningTokens, cutTokens } = limitMessage(draft, room)
    const usage = {
      calls: 1,
      input: said.inputTokens,
      cachedInput: 0,
      output: outputTokens,
      reasoning: reasoningTokens,
    }
    if (!request.captureTokens) return { reply: { message, finishReason, usage, firstTokenMs }, cutTokens }
    const ids = Int32Array.from(cutTokens ?? wholeTokens(message), (token) => token.id)
    const tokens = {
      promptIds: promptIds(request.messages, said.toolsText),
      ids,
      logprobs: logprobsOf(ids.length, base),
      ...(settings.weightVersion === undefined ? {} : { version: settings.weightVersion }),
      ...(settings.routedExperts === '' ? {} : { routedExperts: expertsOf(settings.routedExperts, ids.length, base) }),
    }
    return { reply: { message, finishReason, usage, tokens, firstTokenMs }, cutTokens }
  }

  /** Ends with time, with the request's signal, or with the simulator. */
  async #wait(ms: number, signal: AbortSignal): Promise<void> {
    using scope = new AbortScope(signal)
    this.#waiting.add(scope)
    try {
      await sleep(ms, scope.signal)
    } finally {
      this.#waiting.delete(scope)
    }
  }

  protected override onClose(): void {
    for (const scope of this.#waiting) scope.abort(this.closedSignal.reason)
  }
}

function refusal(error: MillraceError): Answer {
  return { kind: 'refusal', error }
}
