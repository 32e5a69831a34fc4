import type { BackendReply, BackendRequest, ModelRequest, ReplySink } from '../../apis/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { AbortScope, type Semaphore } from '../../kit/index.ts'
import { estimatedTokens, estimatedUsage } from '../usage.ts'
import type { ModelConfig } from '../config.ts'
import type { BreakerPass } from '../limits/circuit-breaker.ts'
import type { LimitFeedback } from '../limits/in-flight.ts'
import { RateLimit, type RateShare } from '../limits/rate-limit.ts'
import type { CallHooks, SentCall } from '../model-client.ts'
import { CallWait, type WaitLimits } from './call-wait.ts'
import { continued, isContinuable, tokensLeft } from './continued-reply.ts'
import type { GatedCall } from './pause-gate.ts'
import type { RetryRule } from './retry.ts'
import type { BackendRoute, BackendRoutes, RoutedCall } from './routing.ts'

interface CallAdmissionOptions {
  readonly config: ModelConfig
  readonly permits: Semaphore
  readonly feedback: LimitFeedback
  /** The part of the rate, if it is shared with other workers. */
  readonly rate: RateShare | undefined
  readonly routes: BackendRoutes
}

/** The tokens that are reserved for a reply if the request does not set `maxTokens`. */
const assumedReplyTokens = 256
const defaultPauseWaitMs = 5 * 60_000
const pausedRetryMs = 1000

function pausedError(model: string, status: 429 | 503): MillraceError {
  const message = `${model} is paused for an update of its weights; try again later`
  return new MillraceError(status === 429 ? 'model_rate_limited' : 'model_overloaded', message, {
    data: { status, retryAfterMs: pausedRetryMs },
  })
}

/**
 * Each try needs a reservation of the rate, a permit, and a pass of its backend's breaker. The caller reports its result once.
 */
export class CallAdmission {
  readonly #permits: Semaphore
  readonly #feedback: LimitFeedback
  readonly #rate: RateLimit | undefined
  readonly #routes: BackendRoutes
  readonly #countsTokens: boolean
  readonly #config: ModelConfig

  constructor({ config, permits, feedback, rate, routes }: CallAdmissionOptions) {
    const { requestsPerMinute, tokensPerMinute } = config
    this.#config = config
    this.#permits = permits
    this.#feedback = feedback
    this.#routes = routes
    this.#countsTokens = tokensPerMinute !== undefined
    if (requestsPerMinute === undefined && tokensPerMinute === undefined) return
    this.#rate = new RateLimit({ requestsPerMinute, tokensPerMinute, share: rate })
  }

  get rateWaiting(): number {
    return this.#rate?.waiting ?? 0
  }

  /** Admits the call without waiting. False if that is not possible: then it holds neither a permit nor a pass. */
  admitNow(call: OngoingCall): boolean {
    if (this.#rate && call.reserved === undefined) {
      const tokens = this.#estimate(call.request)
      if (!this.#rate.tryTake(tokens)) return false
      call.reserved = tokens
    }
    return this.#permits.tryAcquire() && this.#enter(call)
  }

  /**
   * Waits for the reservation, the permit or the pass; `call.wait` has begun and ends this. A parked call holds no permit.
   */
  async admit(call: OngoingCall): Promise<void> {
    const { signal } = call.wait
    if (this.#routes.isPaused) await this.#untilUnpaused(signal)
    if (this.#rate && call.reserved === undefined) {
      const tokens = this.#estimate(call.request)
      await this.#rate.take(tokens, signal)
      call.reserved = tokens
    }
    for (;;) {
      if (this.#routes.canEnter) {
        await this.#permits.acquire(signal)
        // A backend is chosen once, when the call goes: until then breakers open and load changes.
        if (this.#enter(call)) return
        continue
      }
      const route = this.#routes.choose(call)
      if (!route) {
        await this.#untilUnpaused(signal)
        continue
      }
      call.route = route
      if (route.lastFailure) {
        call.wait.parked(route.lastFailure)
        call.hooks.onParked?.(route.lastFailure)
      }
      const pass = await route.breaker.park(signal)
      // Another backend answers: choose again.
      if (!pass) continue
      try {
        await this.#permits.acquire(signal)
      } catch (error) {
        route.breaker.leave(pass, 'cancelled')
        throw error
      }
      // The model may have got other backends while this call waited for the permit, or this one was paused.
      if (!this.#routes.all.includes(route) || route.gate.isPaused) {
        route.breaker.leave(pass, 'cancelled')
        this.#permits.release()
        continue
      }
      call.pass = pass
      route.load.begin(call.contextTokens)
      return
    }
  }

  answered(call: OngoingCall, reply: BackendReply): void {
    this.#free(call, this.#usedBy(reply, call.request))
    if (!this.#routes.only) this.#routes.noteReply(call.request.sessionId, reply.usage.input + reply.usage.output)
    this.#feedback.onSuccess()
    leave(call, 'answered')
  }

  /** True if the failed try is excused: the failure lies with the backend and not with the request. */
  failed(call: OngoingCall, rule: RetryRule, retryAfterMs: number | undefined): boolean {
    this.#free(call, 0)
    if (rule.retried) routeOf(call).load.noteFailure()
    if (rule.cutsConcurrency) this.#feedback.onRateLimited(retryAfterMs)
    return leave(call, rule.evidence, retryAfterMs)
  }

  /** The caller gave the call up while a try was on its way. */
  cancelled(call: OngoingCall): void {
    this.#free(call, 0)
    leave(call, 'cancelled')
  }

  /** Corrects the reservation of a try, if there is one, to the tokens it used; 0 if the try was never sent. */
  settle(call: OngoingCall, used: number): void {
    if (call.reserved === undefined) return
    this.#rate?.settle(call.reserved, used)
    call.reserved = undefined
  }

  shut(): void {
    this.#rate?.shut()
    this.#routes.shut(
      () => new MillraceError('closed', 'the model was closed while requests waited for a pause to end'),
    )
  }

  /** Waits while all backends are paused, in which no call holds a permit. */
  async #untilUnpaused(signal: AbortSignal): Promise<void> {
    const { name, whenPaused, maxPauseWaitMs = defaultPauseWaitMs } = this.#config
    if (whenPaused === 'refuse') throw pausedError(name, 429)
    using limit = new AbortScope(signal, maxPauseWaitMs, () => pausedError(name, 503))
    while (this.#routes.isPaused) await this.#routes.resumed(limit.signal)
  }

  /** Asks the breaker for a pass. The caller has a permit, which is released if there is no pass. */
  #enter(call: OngoingCall): boolean {
    const route = this.#routes.choose(call)
    if (route) {
      call.route = route
      call.pass = route.breaker.enter()
      if (call.pass) route.load.begin(call.contextTokens)
    }
    if (!call.pass) this.#permits.release()
    return call.pass !== undefined
  }

  #free(call: OngoingCall, used: number): void {
    this.#permits.release()
    routeOf(call).load.end(call.contextTokens)
    this.settle(call, used)
  }

  #estimate({ messages, sampling }: ModelRequest): number {
    return this.#countsTokens ? estimatedTokens(messages) + (sampling.maxTokens ?? assumedReplyTokens) : 0
  }

  #usedBy(reply: BackendReply, { messages }: ModelRequest): number {
    const reported = reply.usage.input + reply.usage.output
    if (reported > 0 || !this.#countsTokens) return reported
    const { input, output } = estimatedUsage(reply, messages)
    return input + output
  }
}

function leave(call: OngoingCall, result: RetryRule['evidence'] | 'cancelled', retryAfterMs?: number): boolean {
  const { pass } = call
  call.pass = undefined
  return pass !== undefined && routeOf(call).breaker.leave(pass, result, retryAfterMs)
}

/** One model call while it is being made: what it has been granted and what it has been through. */
export class OngoingCall implements SentCall, RoutedCall, GatedCall {
  readonly request: ModelRequest
  readonly hooks: CallHooks
  readonly startedAt = performance.now()
  sentAt = 0
  /** All tries that were sent, excused ones included. */
  tries = 0
  /** Tries that count against `maxTries`. */
  counted = 0
  /** Tokens reserved from the rate limit for the next try. */
  reserved: number | undefined
  route: BackendRoute | undefined
  contextTokens = 0
  pass: BreakerPass | undefined
  /** Whether part of the reply was passed on, which another try could not take back. */
  hasBegun = false
  /** Whether a pause of the backend has ended the try, or is about to. */
  isInterrupted = false
  /** What engines had of the reply when they aborted it. */
  readonly parts: BackendReply[] = []
  #scope: AbortScope | undefined
  readonly #limits: WaitLimits
  #wait: CallWait | undefined
  #failedAt: BackendRoute[] = []

  constructor(request: ModelRequest, hooks: CallHooks, limits: WaitLimits) {
    this.request = request
    this.hooks = hooks
    this.#limits = limits
  }

  get wait(): CallWait {
    return (this.#wait ??= new CallWait(this.#limits, this.hooks.signal))
  }

  /** The request of the next try, which is aborted with the scope. */
  nextTry(scope: AbortScope): BackendRequest {
    this.#scope = scope
    this.isInterrupted = false
    const request = this.parts.length === 0 ? this.request : continued(this.request, this.parts)
    const tried = { ...request, retry: this.tries - 1, signal: scope.signal }
    if (this.isContinuable) return { ...tried, keepsAborted: true }
    return request.sink ? { ...tried, sink: this.#watched(request.sink) } : tried
  }

  get isContinuable(): boolean {
    return this.request.prompt !== undefined && isContinuable(this.request)
  }

  /** Keeps what there is of a reply that the engine has aborted. The error if more is to come. */
  keep(part: BackendReply): MillraceError | undefined {
    if (part.tokens) this.parts.push(part)
    if (tokensLeft(this.request, this.parts) <= 0) return undefined
    const message = `${this.backend} has aborted the reply`
    return new MillraceError('model_truncated', message, { data: { backend: this.backend } })
  }

  interrupt(reason?: MillraceError): void {
    this.isInterrupted = true
    if (reason) this.#scope?.abort(reason)
  }

  #watched(sink: ReplySink): ReplySink {
    return {
      onEvents: (events, resume) => {
        this.hasBegun = true
        return sink.onEvents(events, resume)
      },
      onPartial: (partial) => sink.onPartial?.(partial),
    }
  }

  get backend(): string {
    return this.route?.backend.name ?? ''
  }

  /** Whether a try is on its way. A call has no pass once its try has been answered or has failed. */
  get isUnderWay(): boolean {
    return this.pass !== undefined
  }

  get isSilent(): boolean {
    return this.isUnderWay && this.route?.isSilentSince(this.sentAt) === true
  }

  hasFailedAt(route: BackendRoute): boolean {
    return this.#failedAt.includes(route)
  }

  failedAt(route: BackendRoute): void {
    this.#failedAt.push(route)
  }

  forgetFailures(): void {
    this.#failedAt = this.#failedAt.slice(-1)
  }
}

/** The route of a call that was admitted. */
export function routeOf({ route }: OngoingCall): BackendRoute {
  return route as BackendRoute
}
