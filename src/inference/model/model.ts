import { MillraceError } from '../../errors/index.ts'
import { AbortScope, Resource, Semaphore, sleep } from '../../kit/index.ts'
import { CallAdmission, OngoingCall, routeOf } from './admission.ts'
import { joined } from './continued-reply.ts'
import { retryAfterOf } from '../../http/index.ts'
import { countTokens } from './count-tokens.ts'
import type { Backend, BackendReply, ModelRequest } from '../../apis/index.ts'
import type { Message, Usage } from '../../schema/index.ts'
import { AdaptiveLimit, type EngineLoad } from '../limits/in-flight.ts'
import { ExactTokens, type PreparedRequest } from '../exact/exact-tokens.ts'
import type { TokenStream } from '../exact/token-stream.ts'
import type { LeasedLimit } from '../limits/worker-limits.ts'
import {
  type CallFacts,
  type CallHooks,
  type CompleteReply,
  type LimitChange,
  type ModelCall,
  modelCalls,
  type ModelClient,
  type ModelReply,
  type ModelStatus,
} from '../model-client.ts'
import { type ModelConfig, type Price, providerOfApi } from '../config.ts'
import { estimatedUsage, modelPrice } from '../usage.ts'
import { versionsIn, WeightVersions } from '../weight-versions.ts'
import type { SetVersion } from './pause-gate.ts'
import { retryDelayMs, retryRule, tryFailure } from './retry.ts'
import { type BackendRouteOptions, BackendRoutes, routeTo } from './routing.ts'
import { routingPolicy } from './routing-policy.ts'

export interface ModelOptions {
  readonly onLimitChange?: (change: LimitChange) => void
  readonly random?: () => number
  /** Limits shared with other workers; if missing, the model has its own. */
  readonly limits?: LeasedLimit
  /** The gate before a backend, where several models share it. Default: one of its own. */
  readonly gateOf?: BackendRouteOptions['gateOf']
}

/** A named policy over its backends. Closing it leaves them open: they belong to the code that opened them. */
export class Model extends Resource implements ModelClient {
  readonly name: string
  readonly #config: ModelConfig
  readonly #options: ModelOptions
  readonly #random: () => number
  readonly #routes: BackendRoutes
  readonly #routeOptions: BackendRouteOptions
  readonly #admission: CallAdmission
  readonly price: Price | undefined
  readonly versions: WeightVersions
  readonly #permits: Semaphore
  #calls = 0
  #tries = 0
  #pausing = 0
  #counting = 0
  #preparing = 0
  /** Only of a model whose prompts are written as token ids. */
  readonly #exactTokens: ExactTokens | undefined

  constructor(config: ModelConfig, backends: readonly Backend[], options: ModelOptions = {}) {
    super()
    if (backends.length === 0) {
      throw new MillraceError('config_invalid', `model ${config.name} has no backend. Give it a url or the simulator.`)
    }
    this.name = config.name
    this.#config = config
    this.#options = options
    this.#random = options.random ?? Math.random
    this.price = modelPrice(config)
    const { limits } = options
    const { maxConcurrency, adaptive } = config
    const permits = limits?.permits ?? new Semaphore(maxConcurrency)
    this.#permits = permits
    this.versions = limits?.versions ?? new WeightVersions()
    this.#routeOptions = {
      config,
      permits,
      random: this.#random,
      gateOf: options.gateOf,
      report: (kind, change) => {
        this.#report(kind, change)
        limits?.reportSoon()
      },
    }
    this.#routes = new BackendRoutes(routingPolicy(config.routing, this.#random))
    this.#routes.use(backends.map((backend) => routeTo(backend, this.#routes, this.#routeOptions)))
    this.#exactTokens = config.tokens && new ExactTokens(config, () => this.backends, this.closedSignal)
    limits?.attach(this.#routes.all.map(({ breaker }) => breaker))
    const onChange = (from: number, to: number, why: string) => this.#report('concurrency', { from, to, why })
    this.#admission = new CallAdmission({
      config,
      permits,
      feedback: limits ?? new AdaptiveLimit({ maxConcurrency, adaptive, permits, onChange }),
      rate: limits?.rate,
      routes: this.#routes,
    })
  }

  /** Whether no call and no count of tokens is under way. Meaningful only for a model that shares its limits with nobody. */
  get isIdle(): boolean {
    const { inFlight, waiting, parked } = this.status()
    return inFlight + waiting + parked + this.#pausing + this.#counting + this.#preparing === 0
  }

  /** The request as backends are sent it: with its prompt as ids, if the model's tokens are exact. */
  async prepared(request: ModelRequest, signal: AbortSignal): Promise<ModelRequest> {
    return this.#exactTokens ? (await this.#exactTokens.prepare(request, signal)).request : request
  }

  /** What is known of the tokens and the chat template. Rejects if they cannot be exact. */
  async tokenStream(): Promise<TokenStream> {
    if (this.#exactTokens) return await this.#exactTokens.open()
    throw new MillraceError(
      'config_invalid',
      `model ${this.name} has no exact tokens: set tokens: 'exact' in its config`,
    )
  }

  get backends(): readonly Backend[] {
    return this.#routes.all.map(({ backend }) => backend)
  }

  /** Resolves when calls to removed backends have ended. Only for a model that shares its limits with nobody. */
  async changeBackends(backends: readonly Backend[]): Promise<void> {
    const before = this.#routes.all
    const known = new Map(before.map((route) => [route.backend, route]))
    this.#routes.use(
      backends.map((backend) => known.get(backend) ?? routeTo(backend, this.#routes, this.#routeOptions)),
    )
    if (backends.some((backend) => !known.has(backend))) this.#exactTokens?.reset()
    this.#routes.wake()
    const retired = before.filter((route) => !this.#routes.all.includes(route))
    await Promise.all(retired.map((route) => route.retire()))
  }

  call(request: ModelRequest, hooks: CallHooks): Promise<ModelReply> {
    return modelCalls.hasSubscribers ? this.#observed(request, hooks) : this.#run(request, hooks)
  }

  /** Counting samples nothing: it needs no permit, uses up no rate, and says nothing about how busy a backend is. */
  async countTokens(request: ModelRequest, hooks: CallHooks): Promise<number> {
    this.#counting += 1
    try {
      if (this.#exactTokens) return await this.#exactTokens.count(request, hooks.signal)
      return await countTokens(request, hooks, { config: this.#config, routes: this.#routes, random: this.#random })
    } finally {
      this.#counting -= 1
    }
  }

  async #observed(request: ModelRequest, hooks: CallHooks): Promise<ModelReply> {
    const call: ModelCall = { model: this.name, request, startedAt: performance.now() }
    modelCalls.publish({ kind: 'start', call })
    const { traceparent } = call
    const reply = await this.#run(traceparent === undefined ? request : { ...request, traceparent }, hooks)
    const { all } = this.#routes
    const asked = all.find(({ backend }) => backend.name === reply.backend) ?? all[0]
    const provider = asked?.backend.provider ?? providerOfApi(this.#config.api)
    // Listeners get the usage that is counted, with estimates filled in; the caller gets what the server itself reported.
    const counted = reply.status === 'complete' ? withUsage(reply, request.messages, this.price) : reply
    modelCalls.publish({ kind: 'end', call, reply: counted, provider })
    return reply
  }

  #run(request: ModelRequest, hooks: CallHooks): Promise<ModelReply> {
    // A request in SGLang's own API has its prompt in its body.
    return this.#exactTokens && !request.bodyApi
      ? this.#runExact(this.#exactTokens, request, hooks)
      : this.#ask(request, hooks)
  }

  async #runExact(exact: ExactTokens, request: ModelRequest, hooks: CallHooks): Promise<ModelReply> {
    let facts: CallFacts = { model: this.name, backend: '', tries: 0, ms: 0, waitMs: 0 }
    try {
      const prepared = await this.#prepared(exact, request, hooks.signal)
      const reply = await this.#ask(prepared.request, hooks)
      if (reply.status !== 'complete') return reply
      facts = reply
      return exact.read(reply, prepared)
    } catch (thrown) {
      const { model, backend, tries, ms, waitMs } = facts
      const status = hooks.signal.aborted ? 'aborted' : 'failed'
      return { status, model, backend, tries, ms, waitMs, error: MillraceError.from(thrown, 'internal') }
    }
  }

  async #prepared(exact: ExactTokens, request: ModelRequest, signal: AbortSignal): Promise<PreparedRequest> {
    this.#preparing += 1
    try {
      return await exact.prepare(request, signal)
    } finally {
      this.#preparing -= 1
    }
  }

  /** Asks backends until one has answered, or the call may not be tried again. */
  async #ask(request: ModelRequest, hooks: CallHooks): Promise<ModelReply> {
    const call = new OngoingCall(request, hooks, this.#config)
    this.#calls += 1
    for (;;) {
      if (hooks.signal.aborted || this.isClosed) return this.#broken(call, this.closedSignal.reason)
      if (!this.#admission.admitNow(call)) {
        try {
          await this.#waiting(call, () => this.#admission.admit(call))
        } catch (error) {
          return this.#broken(call, error)
        }
      }
      // The backend may have been paused since the call was admitted.
      if (routeOf(call).gate.isPaused) {
        this.#admission.cancelled(call)
        continue
      }
      const reply = await this.#send(call)
      if (!(reply instanceof MillraceError)) {
        this.#admission.answered(call, reply)
        const { parts } = call
        return this.#complete(call, parts.length === 0 ? reply : await joined(parts, reply))
      }
      const end = await this.#onFailedTry(call, reply)
      if (end) return end
    }
  }

  /** Why calls wait for the backend; undefined if they do not. */
  failureAt(backend: Backend): MillraceError | undefined {
    const route = this.#routes.all.find((each) => each.backend === backend)
    return route?.breaker.isOpen ? route.lastFailure : undefined
  }

  endSession(sessionId: string): void {
    this.#routes.forget(sessionId)
    for (const { backend } of this.#routes.all) backend.endSession?.(sessionId)
  }

  /** What the engine of one of the backends says of itself; undefined if it says nothing any more. */
  noteEngineLoad(backend: Backend, load: EngineLoad | undefined): void {
    const route = this.#routes.all.find((each) => each.backend === backend)
    if (route) route.load.engine = load
  }

  /** The status in this worker: of limits that are shared, `limit` is the number of permits it has leased. */
  status(): ModelStatus {
    const { all } = this.#routes
    const parked = all.reduce((sum, { breaker }) => sum + breaker.parked, 0)
    const probing = all.filter(({ breaker }) => breaker.isProbing).length
    const isShut = all.every(
      ({ breaker, gate }) => gate.isPaused || breaker.isProbing || (breaker.isOpen && breaker.dueInMs > 0),
    )
    const failure = all.find(({ breaker, lastFailure }) => lastFailure && breaker.parked > 0)?.lastFailure
    return {
      name: this.name,
      limit: this.#permits.limit,
      inFlight: this.#permits.held,
      waiting: this.#permits.waiting + this.#admission.rateWaiting + this.#routes.paused,
      parked,
      ...(probing > 0 && { probing }),
      ...(isShut && { isShut }),
      ...(failure && { parkedBecause: failure.rawMessage }),
      calls: this.#calls,
      tries: this.#tries,
      ...(all.length > 1 && { backends: all.map((route) => route.status()) }),
    }
  }

  protected override async onClose(): Promise<void> {
    this.#admission.shut()
    await this.#exactTokens?.close()
  }

  async #send(call: OngoingCall): Promise<BackendReply | MillraceError> {
    call.tries += 1
    this.#tries += 1
    call.sentAt = performance.now()
    call.hooks.onSend?.(call)
    const { backend, gate } = routeOf(call)
    const { version } = gate
    using scope = new AbortScope(call.hooks.signal)
    gate.enter(call)
    try {
      const sent = await backend.send(call.nextTry(scope))
      const flaw = replyFlaw(sent, call.backend)
      if (flaw) return flaw
      const reply = version && version === gate.version ? stamped(sent, version) : sent
      return reply.isAborted ? (call.keep(reply) ?? reply) : reply
    } catch (error) {
      return tryFailure(error, call.backend)
    } finally {
      gate.leave(call)
    }
  }

  /** Waits until the call may be tried again and returns undefined, or returns how the call ends. */
  async #onFailedTry(call: OngoingCall, error: MillraceError): Promise<ModelReply | undefined> {
    const { hooks } = call
    call.wait.failed(error)
    if (!hooks.signal.aborted) hooks.onFailedTry?.(performance.now() - call.sentAt, error)
    const delayMs = this.#onFailure(call, error)
    if (delayMs === undefined) return this.#broken(call, error)
    if (delayMs === 0) return undefined
    this.#pausing += 1
    try {
      await this.#waiting(call, (signal) => sleep(delayMs, signal))
      return undefined
    } catch (reason) {
      return this.#broken(call, reason)
    } finally {
      this.#pausing -= 1
    }
  }

  #onFailure(call: OngoingCall, error: MillraceError): number | undefined {
    if (call.hooks.signal.aborted) {
      this.#admission.cancelled(call)
      return undefined
    }
    if (modelCalls.hasSubscribers) modelCalls.publish({ kind: 'try-failed', model: this.name, error })
    if (call.isInterrupted && error.code === 'model_truncated') {
      this.#admission.cancelled(call)
      return call.hasBegun ? undefined : 0
    }
    const rule = retryRule(error.code)
    const retryAfterMs = retryAfterOf(error)
    // Set before the breaker hears of the failure: if the breaker opens, it reports why.
    routeOf(call).lastFailure = error
    const isExcused = this.#admission.failed(call, rule, retryAfterMs)
    call.failedAt(routeOf(call))
    if (call.hasBegun) return undefined
    // With one try allowed, the caller wants to see it fail.
    if (isExcused && rule.counts === 'unless-parked' && this.#config.maxTries > 1) return 0
    call.counted += 1
    if (!rule.retried || call.counted >= this.#config.maxTries) return undefined
    if (this.#routes.hasFreshRoute(call)) return 0
    return retryDelayMs(rule, { failures: call.counted, retryAfterMs, random: this.#random })
  }

  #complete(call: OngoingCall, reply: BackendReply): ModelReply {
    for (const version of reply.tokens ? versionsIn(reply.tokens) : []) {
      this.versions.note(version)
      routeOf(call).gate.lastVersion = version
    }
    const facts = this.#facts(call)
    routeOf(call).load.noteAnswer(call.sentAt + facts.ms, reply.firstTokenMs ?? facts.ms)
    return { ...reply, ...facts, status: 'complete', cost: costOf(reply.usage, this.price) }
  }

  #broken(call: OngoingCall, thrown: unknown): ModelReply {
    // Give back the reservation for a try that was never sent.
    this.#admission.settle(call, 0)
    const { signal } = call.hooks
    if (signal.aborted) {
      return { status: 'aborted', ...this.#facts(call), error: MillraceError.from(signal.reason, 'cancelled') }
    }
    const error = MillraceError.from(thrown, 'internal')
    return { status: error.code === 'model_truncated' ? 'truncated' : 'failed', ...this.#facts(call), error }
  }

  #facts(call: OngoingCall): CallFacts {
    const now = performance.now()
    const sentAt = call.tries === 0 ? now : call.sentAt
    const logprobs = call.route?.backend.logprobs
    return {
      model: this.name,
      backend: call.backend,
      tries: call.tries,
      ms: now - sentAt,
      waitMs: sentAt - call.startedAt,
      ...(logprobs && { logprobs }),
    }
  }

  /** Awaits the work while the rollout's working clock stands still, for as long as the call may wait. */
  async #waiting(call: OngoingCall, work: (signal: AbortSignal) => Promise<void>): Promise<void> {
    const { hooks, wait } = call
    wait.start()
    hooks.onWaitStart?.()
    try {
      await work(wait.signal)
    } finally {
      wait.stop()
      hooks.onWaitEnd?.()
    }
  }

  #report(kind: LimitChange['kind'], change: Pick<LimitChange, 'from' | 'to' | 'why'>): void {
    this.#options.onLimitChange?.({ model: this.name, at: Date.now(), kind, ...change })
  }
}

/** With the version that was set before the request was sent and still is: not where the backend says it, now or later. */
function stamped(reply: BackendReply, { version }: SetVersion): BackendReply {
  const { tokens, laterVersion } = reply
  if (!tokens || laterVersion || versionsIn(tokens).length > 0) return reply
  return { ...reply, tokens: { ...tokens, version } }
}

/** Fills in the usage of a reply if the server reported none, because limits hold all the same. */
export function withUsage(reply: CompleteReply, prompt: readonly Message[], price: Price | undefined): CompleteReply {
  if (reply.usage.input + reply.usage.output > 0) return reply
  const usage = estimatedUsage(reply, prompt)
  return { ...reply, usage, cost: costOf(usage, price) }
}

/** US dollars; null where no price is known. */
export function costOf(usage: Readonly<Usage>, price: Price | undefined): number | null {
  if (!price) return null
  const cached = Math.min(usage.cachedInput, usage.input)
  const input = (usage.input - cached) * price.input + cached * (price.cachedInput ?? price.input)
  return (input + usage.output * price.output) / 1_000_000
}

/** A backend's reply before it is checked: a backend may be a user's own code, whose types promise nothing at run time. */
interface UncheckedReply {
  readonly message?: { readonly role?: unknown; readonly content?: unknown } | null
  readonly usage?: Partial<Usage> | null
}

/** Checks only what the rest of the program needs: a message of the assistant, and usage that can be summed. */
export function replyFlaw(reply: UncheckedReply | null | undefined, backend: string): MillraceError | undefined {
  const flaw = flawOf(reply)
  if (flaw === undefined) return undefined
  return new MillraceError(
    'model_malformed',
    `the backend ${backend} resolved with ${flaw}. Its send() must resolve with a BackendReply or reject.`,
  )
}

function flawOf(reply: UncheckedReply | null | undefined): string | undefined {
  if (typeof reply !== 'object' || reply === null) return 'no reply'
  const { message, usage } = reply
  if (message?.role !== 'assistant') return 'a reply without a message of the assistant'
  // Many backends leave the content out beside tool calls.
  const { content = null } = message
  if (typeof content !== 'string' && content !== null) return 'a message whose content is neither text nor null'
  const { calls = NaN, input = NaN, cachedInput = NaN, output = NaN, reasoning = NaN } = usage ?? {}
  // One sum instead of five checks: a value that is no number makes the sum NaN.
  if (!Number.isFinite(calls + input + cachedInput + output + reasoning)) {
    return 'a reply whose usage has no number for each of calls, input, cachedInput, output and reasoning'
  }
  return undefined
}
