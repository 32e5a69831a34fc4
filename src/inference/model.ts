import { MillraceError } from '../errors/index.ts'
import { Resource, sleep, type Draft } from '../kit/index.ts'
import { CallAdmission } from './_call-admission.ts'
import { askedDelayMs } from './asked-delay.ts'
import { countTokens } from './_count-tokens.ts'
import type { Backend, BackendReply, ModelRequest } from './backend.ts'
import { Counter, sumOf } from './limits/counter.ts'
import { BackendRoutes, type BackendRoute } from './_backend-routes.ts'
import { routeTo, type BackendRouteOptions } from './_route-to.ts'
import { modelCalls, type ModelCall } from './model-calls.ts'
import type { ModelConfig, Price } from './model-config.ts'
import type { CallHooks, LimitChange, ModelClient, ModelStatus } from './model-contract.ts'
import { ownBackendCells, ownLimits, statusOf, type ModelLimits } from './limits/model-limits.ts'
import type { CallFacts, CompleteReply, ModelReply } from './model-reply.ts'
import { routeOf, OngoingCall } from './_ongoing-call.ts'
import { costOf, modelPrice } from './prices.ts'
import { providerOfApi } from './providers.ts'
import { replyFlaw, tryFailure } from './_backend-faults.ts'
import { retryDelayMs, retryRule } from './retry-table.ts'
import { withUsage } from './untold-usage.ts'
import { shapeOf, type BackendCells } from './limits/shared-limits-cells.ts'

export interface ModelOptions {
  readonly onLimitChange?: (change: LimitChange) => void
  readonly random?: () => number
  /** Limits shared with other workers; if missing, the model has its own. */
  readonly limits?: ModelLimits
}

/**
 * A named policy over its backends: permits, rate limits, retries, parking, routing and accounting. When a permit is free and
 * nothing is wrong, a call goes straight to the backend; everything else happens only on the way there or back. Closing the
 * model leaves its backends open: they belong to the code that opened them.
 */
export class Model extends Resource implements ModelClient {
  readonly name: string
  readonly #config: ModelConfig
  readonly #options: ModelOptions
  readonly #random: () => number
  readonly #routes = new BackendRoutes()
  readonly #routeOptions: BackendRouteOptions
  readonly #admission: CallAdmission
  readonly price: Price | undefined
  readonly #limits: ModelLimits
  readonly #calls: Counter
  readonly #tries: Counter
  readonly #stopFollowing: () => void
  /** Calls that wait for their next try. */
  #pausing = 0
  #counting = 0

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
    const limits = options.limits ?? ownLimits({ ...shapeOf(config), backends: backends.length })
    const { cells, place } = limits
    this.#limits = limits
    this.#calls = new Counter(cells.calls, place)
    this.#tries = new Counter(cells.tries, place)
    this.#routeOptions = {
      config,
      limits,
      random: this.#random,
      report: (kind, change) => this.#report(kind, change),
    }
    this.#routes.set(backends.map((backend, index) => this.#routeTo(backend, cells.backends[index])))
    this.#admission = new CallAdmission({
      config,
      limits,
      routes: this.#routes,
      onChange: (from, to, why) => this.#report('concurrency', { from, to, why }),
    })
    this.#stopFollowing = limits.onAnnounced(() => {
      for (const route of this.#routes.all) route.gate.follow()
    })
  }

  /** Whether no call and no count of tokens is under way. Meaningful only for a model that shares its limits with nobody. */
  get isIdle(): boolean {
    const { inFlight, waiting, parked } = this.status()
    return inFlight + waiting + parked + this.#pausing + this.#counting === 0
  }

  get backends(): readonly Backend[] {
    return this.#routes.all.map(({ backend }) => backend)
  }

  /**
   * Replaces the backends. Those that stay keep their state, and the model keeps its limits. Resolves when the calls on their
   * way to removed backends have ended. Only for a model that shares its limits with nobody.
   */
  async changeBackends(backends: readonly Backend[]): Promise<void> {
    const before = this.#routes.all
    const known = new Map(before.map((route) => [route.backend, route]))
    const cells = ownBackendCells(backends.length)
    this.#routes.set(backends.map((backend, index) => known.get(backend) ?? this.#routeTo(backend, cells[index])))
    const retired = before.filter((route) => !this.#routes.all.includes(route))
    await Promise.all(retired.map((route) => route.retire()))
  }

  #routeTo(backend: Backend, cells: BackendCells | undefined): BackendRoute {
    if (!cells) throw new MillraceError('internal', `the limits of ${this.name} do not know ${backend.name}`)
    return routeTo(backend, cells, this.#routes, this.#routeOptions)
  }

  call(request: ModelRequest, hooks: CallHooks): Promise<ModelReply> {
    return modelCalls.hasSubscribers ? this.#observed(request, hooks) : this.#carryOut(request, hooks)
  }

  /** Counting samples nothing: it needs no permit, uses up no rate, and says nothing about how busy a backend is. */
  async countTokens(request: ModelRequest, hooks: CallHooks): Promise<number> {
    this.#counting += 1
    try {
      return await countTokens(request, hooks, { config: this.#config, routes: this.#routes, random: this.#random })
    } finally {
      this.#counting -= 1
    }
  }

  async #observed(request: ModelRequest, hooks: CallHooks): Promise<ModelReply> {
    const call: ModelCall = { model: this.name, request, startedAt: performance.now() }
    modelCalls.publish({ kind: 'start', call })
    const { traceparent } = call
    const reply = await this.#carryOut(traceparent === undefined ? request : { ...request, traceparent }, hooks)
    const { all } = this.#routes
    const asked = all.find(({ backend }) => backend.name === reply.backend) ?? all[0]
    const provider = asked?.backend.provider ?? providerOfApi(this.#config.api)
    // Listeners get the usage that is counted, with estimates filled in; the caller gets what the server itself reported.
    const counted = reply.status === 'complete' ? withUsage(reply, request.messages, this.price) : reply
    modelCalls.publish({ kind: 'end', call, reply: counted, provider })
    return reply
  }

  /** Promises are chained, not awaited, for a call that is sent and answered at once; `Session.turn` says why. */
  #carryOut(request: ModelRequest, hooks: CallHooks): Promise<ModelReply> {
    const call = new OngoingCall(request, hooks, this.#config)
    this.#calls.add(1)
    if (this.#isStopped(call)) return this.#persist(call)
    try {
      if (!this.#admission.admitNow(call)) return this.#persist(call, 'waits')
    } catch (error) {
      return Promise.reject(error)
    }
    return this.#send(call).then(
      (reply) => {
        const flaw = replyFlaw(reply, call.backend)
        return flaw ? this.#afterFailedTry(call, flaw) : this.#complete(call, reply)
      },
      (error: unknown) => this.#afterFailedTry(call, error),
    )
  }

  async #afterFailedTry(call: OngoingCall, error: unknown): Promise<ModelReply> {
    return (await this.#onFailedTry(call, error)) ?? this.#persist(call)
  }

  /** Carries on with a call that has to wait, whose first try failed, or that was stopped before it began. */
  async #persist(call: OngoingCall, state?: 'waits'): Promise<ModelReply> {
    for (let mustWait = state === 'waits'; ; mustWait = false) {
      if (this.#isStopped(call)) return this.#broken(call, this.closedSignal.reason)
      if (mustWait || !this.#admission.admitNow(call)) {
        try {
          await this.#waiting(call, () => this.#admission.admit(call))
        } catch (error) {
          return this.#broken(call, error)
        }
      }
      let reply: BackendReply
      try {
        reply = await this.#send(call)
        const flaw = replyFlaw(reply, call.backend)
        if (flaw) throw flaw
      } catch (error) {
        const end = await this.#onFailedTry(call, error)
        if (end) return end
        continue
      }
      return this.#complete(call, reply)
    }
  }

  #isStopped({ hooks }: OngoingCall): boolean {
    return hooks.signal.aborted || this.isClosed
  }

  endSession(sessionId: string): void {
    this.#routes.forget(sessionId)
    for (const { backend } of this.#routes.all) backend.endSession?.(sessionId)
  }

  status(): ModelStatus {
    const status = statusOf(
      this.name,
      this.#limits.cells,
      this.#routes.all.map(({ cells }) => cells),
    )
    if (status.parked === 0) return status
    const failure = this.#routes.all.find(
      ({ cells, lastFailure }) => lastFailure && sumOf(cells.parked) > 0,
    )?.lastFailure
    return failure ? { ...status, parkedBecause: failure.rawMessage } : status
  }

  protected override async onClose(): Promise<void> {
    this.#stopFollowing()
    this.#admission.shut()
  }

  #send(call: OngoingCall): Promise<BackendReply> {
    const route = routeOf(call)
    call.tries += 1
    this.#tries.add(1)
    call.sentAt = performance.now()
    call.hooks.onSend?.(call)
    try {
      // A user's own backend may return its reply without a promise.
      return Promise.resolve(route.backend.send(call.nextTry()))
    } catch (error) {
      return Promise.reject(error)
    }
  }

  /** Waits until the call may be tried again and returns undefined, or returns how the call ends. */
  async #onFailedTry(call: OngoingCall, thrown: unknown): Promise<ModelReply | undefined> {
    const { hooks } = call
    const error = tryFailure(thrown, call.backend)
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

  /** How long to wait before the next try; undefined if there is none. */
  #onFailure(call: OngoingCall, error: MillraceError): number | undefined {
    if (call.hooks.signal.aborted) {
      this.#admission.cancelled(call)
      return undefined
    }
    if (modelCalls.hasSubscribers) modelCalls.publish({ kind: 'try-failed', model: this.name, error })
    const rule = retryRule(error.code)
    const retryAfterMs = askedDelayMs(error)
    // Set before the gate hears of the failure: if the gate closes, it reports why.
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
    this.#admission.answered(call, reply)
    const {
      message,
      finishReason,
      stopSequence,
      stopReason,
      usage,
      tokens,
      firstTokenMs,
      original,
      raw,
      laterVersion,
    } = reply
    const { model, backend, tries, ms, waitMs, logprobs } = this.#facts(call)
    routeOf(call).noteAnswer(call.sentAt + ms, firstTokenMs ?? ms)
    const cost = costOf(usage, this.price)
    const complete: Draft<CompleteReply> = {
      status: 'complete',
      model,
      backend,
      tries,
      ms,
      waitMs,
      cost,
      message,
      finishReason,
      usage,
    }
    // Optional fields are added afterwards, because a literal with conditional spreads is built field by field.
    if (stopSequence !== undefined) complete.stopSequence = stopSequence
    if (stopReason !== undefined) complete.stopReason = stopReason
    if (original) complete.original = original
    if (tokens) complete.tokens = tokens
    if (laterVersion) complete.laterVersion = laterVersion
    if (firstTokenMs !== undefined) complete.firstTokenMs = firstTokenMs
    if (raw) complete.raw = raw
    if (logprobs) complete.logprobs = logprobs
    return complete
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
