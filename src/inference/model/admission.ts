import type { Backend, BackendReply, BackendRequest, ModelRequest, ReplySink } from '../../apis/index.ts'
import type { MillraceError } from '../../errors/index.ts'
import type { Semaphore } from '../../kit/index.ts'
import { estimatedTokens, estimatedUsage } from '../usage.ts'
import type { ModelConfig } from '../config.ts'
import { type BreakerPass, type LimitFeedback, CircuitBreaker } from '../limits/circuit-breaker.ts'
import { RateLimit, type RateShare } from '../limits/rate-limit.ts'
import type { CallHooks, LimitChange, SentCall } from '../model-client.ts'
import { CallWait, type WaitLimits } from './call-wait.ts'
import type { RetryRule } from './retry.ts'

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

/**
 * Each try needs a reservation of the rate, a permit, and a pass of its backend's breaker. The caller reports its result once.
 */
export class CallAdmission {
  readonly #permits: Semaphore
  readonly #feedback: LimitFeedback
  readonly #rate: RateLimit | undefined
  readonly #routes: BackendRoutes
  readonly #countsTokens: boolean

  constructor({ config, permits, feedback, rate, routes }: CallAdmissionOptions) {
    const { requestsPerMinute, tokensPerMinute } = config
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
    if (this.#rate && call.reserved === undefined) {
      const tokens = this.#estimate(call.request)
      await this.#rate.take(tokens, signal)
      call.reserved = tokens
    }
    for (;;) {
      const route = this.#routes.choose(call)
      call.route = route
      if (route.breaker.canEnter) {
        await this.#permits.acquire(signal)
        // The breaker may have opened while this call waited for the permit, so it is asked only now.
        if (this.#enter(call)) return
        continue
      }
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
      // The model may have got other backends while this call waited for the permit.
      if (!this.#routes.all.includes(route)) {
        this.#permits.release()
        continue
      }
      call.pass = pass
      route.inFlight += 1
      return
    }
  }

  answered(call: OngoingCall, reply: BackendReply): void {
    this.#free(call, this.#usedBy(reply, call.request))
    this.#feedback.onSuccess()
    leave(call, 'answered')
  }

  /** True if the failed try is excused: the failure lies with the backend and not with the request. */
  failed(call: OngoingCall, rule: RetryRule, retryAfterMs: number | undefined): boolean {
    this.#free(call, 0)
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
    for (const { breaker } of this.#routes.all) breaker.shut()
  }

  /** Asks the breaker for a pass. The caller has a permit, which is released if there is no pass. */
  #enter(call: OngoingCall): boolean {
    const route = this.#routes.choose(call)
    call.route = route
    call.pass = route.breaker.enter()
    if (call.pass) route.inFlight += 1
    else this.#permits.release()
    return call.pass !== undefined
  }

  #free(call: OngoingCall, used: number): void {
    this.#permits.release()
    routeOf(call).noteEnded()
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
export class OngoingCall implements SentCall {
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
  pass: BreakerPass | undefined
  /** Whether part of the reply was passed on, which another try could not take back. */
  hasBegun = false
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

  nextTry(): BackendRequest {
    const { request } = this
    const tried = { ...request, retry: this.tries - 1, signal: this.hooks.signal }
    return request.sink ? { ...tried, sink: this.#watched(request.sink) } : tried
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

  /** All backends have failed the call: none is preferred to another any more. */
  forgetFailures(): void {
    this.#failedAt = []
  }
}

/** The route of a call that was admitted. */
export function routeOf({ route }: OngoingCall): BackendRoute {
  return route as BackendRoute
}

/** A backend with its breaker and the count of requests on their way to it. */
export class BackendRoute {
  readonly backend: Backend
  readonly breaker: CircuitBreaker
  /** Why the last failed try at this backend failed. */
  lastFailure: MillraceError | undefined
  /** Requests of this worker on their way to the backend. */
  inFlight = 0
  #onIdle: (() => void) | undefined
  /** When the backend's last answer was complete, and the longest it ever took to begin one. */
  #answeredAt = 0
  #longestGapMs = 0

  constructor(backend: Backend, breaker: CircuitBreaker) {
    this.backend = backend
    this.breaker = breaker
  }

  noteEnded(): void {
    this.inFlight -= 1
    if (this.inFlight === 0) this.#onIdle?.()
  }

  /** Takes the route out of use: calls parked here choose another one. Resolves when its requests on their way have ended. */
  retire(): Promise<void> {
    this.breaker.dismiss()
    this.breaker.shut()
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#onIdle = resolve
    if (this.inFlight === 0) resolve()
    return promise
  }

  noteAnswer(answeredAt: number, gapMs: number): void {
    this.#answeredAt = answeredAt
    this.#longestGapMs = Math.max(this.#longestGapMs, gapMs)
  }

  /** Whether the backend has said nothing to any call since `sentAt`, and for longer than it ever took to begin an answer. */
  isSilentSince(sentAt: number): boolean {
    const lastByteAt = Math.max(this.#answeredAt, this.backend.lastByteAt ?? 0)
    return lastByteAt < sentAt && performance.now() - sentAt > this.#longestGapMs
  }
}

/** At most so many sessions are remembered. Beyond it the least recently used one is forgotten, and may move. */
const maxSessions = 65_536

/**
 * Chooses the backend of a call. A session stays with its backend, because its prefix is cached there, unless that backend
 * failed this very call or its breaker is open while another one is closed. New and moved sessions go to the backend with the
 * fewest requests on their way.
 */
export class BackendRoutes {
  /** Replaced when the backends change. A session whose route is gone moves: the breaker of a retired route admits nothing. */
  all: readonly BackendRoute[] = []
  // A Map iterates in insertion order, and `#pin` puts an entry at the end, so the first one is the least recently used.
  readonly #pinned = new Map<string, BackendRoute>()
  /** Where the search begins, so that equally idle backends take turns. */
  #turn = 0

  /** The backend to use now. If its breaker is open, all breakers are, and the call has to park there. */
  choose(call: OngoingCall): BackendRoute {
    const { all } = this
    if (all.length === 1) return all[0] as BackendRoute
    const { sessionId } = call.request
    const pinned = this.#pinned.get(sessionId)
    const isUsable = pinned && pinned.breaker.canEnter && !call.hasFailedAt(pinned)
    const route = isUsable ? pinned : (this.#leastBusy(call) ?? this.#leastParked(pinned))
    this.#pin(sessionId, route)
    return route
  }

  /** Whether another try could go to a different backend at once: one that is usable and has not failed this call. */
  hasFreshRoute(call: OngoingCall): boolean {
    return this.all.length > 1 && this.all.some((route) => route.breaker.canEnter && !call.hasFailedAt(route))
  }

  forget(sessionId: string): void {
    this.#pinned.delete(sessionId)
  }

  #pin(sessionId: string, route: BackendRoute): void {
    this.#pinned.delete(sessionId)
    this.#pinned.set(sessionId, route)
    if (this.#pinned.size <= maxSessions) return
    const [oldest = ''] = this.#pinned.keys()
    this.#pinned.delete(oldest)
  }

  #leastBusy(call: OngoingCall): BackendRoute | undefined {
    const usable = this.all.filter((route) => route.breaker.canEnter)
    let candidates = usable.filter((route) => !call.hasFailedAt(route))
    if (candidates.length === 0) {
      call.forgetFailures()
      candidates = usable
    }
    this.#turn += 1
    let best: BackendRoute | undefined
    for (let step = 0; step < candidates.length; step += 1) {
      const route = candidates[(this.#turn + step) % candidates.length] as BackendRoute
      if (!best || route.inFlight < best.inFlight) best = route
    }
    return best
  }

  /** Where to park: at a backend that answers again, if there is one, because its queue is moving. */
  #leastParked(pinned: BackendRoute | undefined): BackendRoute {
    const recovering = this.all.filter((route) => route.breaker.isRecovering)
    if (pinned && recovering.includes(pinned)) return pinned
    const candidates = recovering.length > 0 ? recovering : this.all
    return candidates.reduce((best, route) => (route.breaker.parked < best.breaker.parked ? route : best))
  }
}

export interface BackendRouteOptions {
  readonly config: ModelConfig
  readonly permits: Semaphore
  readonly random: () => number
  readonly report: (kind: 'parked' | 'released', change: Pick<LimitChange, 'from' | 'to' | 'why'>) => void
}

/** Failures in a row that make a backend count as overloaded; fewer where fewer tries are allowed. */
const overloadThreshold = 5

/** Makes the route to one backend of a model, with a breaker of its own. `routes` is the live list of the model's routes. */
export function routeTo(backend: Backend, routes: BackendRoutes, options: BackendRouteOptions): BackendRoute {
  const { config, permits, random, report } = options
  const { maxConcurrency, maxTries } = config
  const breaker: CircuitBreaker = new CircuitBreaker({
    threshold: maxTries === 1 ? overloadThreshold : Math.min(overloadThreshold, maxTries),
    maxConcurrency,
    random,
    onOpen: (failures) => {
      const found = `${backend.name} failed ${failures} times in a row: requests wait, and one at a time probes it`
      const why = route.lastFailure ? `${found}. The last failure: ${route.lastFailure.rawMessage}` : found
      report('parked', { from: permits.limit, to: 1, why })
    },
    onRecover: (openMs, parked) => {
      const why = `${backend.name} answers again after ${(openMs / 1000).toFixed(1)} s: ${parked} waiting requests continue`
      report('released', { from: 1, to: permits.limit, why })
    },
    onRecovering: () => {
      for (const route of routes.all) if (route.breaker !== breaker) route.breaker.dismiss()
    },
  })
  const route: BackendRoute = new BackendRoute(backend, breaker)
  return route
}
