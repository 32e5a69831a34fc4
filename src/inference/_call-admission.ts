import { AdaptiveLimit } from './limits/adaptive-limit.ts'
import type { BackendReply, ModelRequest } from './backend.ts'
import { estimatedTokens } from './estimated-tokens.ts'
import type { BackendRoutes } from './_backend-routes.ts'
import type { ModelConfig } from './model-config.ts'
import type { ModelLimits } from './limits/model-limits.ts'
import { routeOf, type OngoingCall } from './_ongoing-call.ts'
import { RateLimit } from './limits/rate-limit.ts'
import type { RetryRule } from './retry-table.ts'
import { untoldUsage } from './untold-usage.ts'

export interface CallAdmissionOptions {
  readonly config: ModelConfig
  readonly limits: ModelLimits
  readonly routes: BackendRoutes
  /** Called when the number of requests that may be on their way at once has changed. */
  readonly onChange: (from: number, to: number, why: string) => void
}

/** The tokens that are reserved for a reply if the request does not set `maxTokens`. */
const assumedReplyTokens = 256

/**
 * Lets calls go to a model: each try needs a reservation of the rate, a permit, and a ticket of the gate of its backend. For
 * each try that was admitted the caller reports the result once: `answered`, `failed` or `cancelled`.
 */
export class CallAdmission {
  readonly #limit: AdaptiveLimit
  readonly #rate: RateLimit | undefined
  readonly #routes: BackendRoutes
  readonly #countsTokens: boolean

  constructor({ config, limits, routes, onChange }: CallAdmissionOptions) {
    const { maxConcurrency, adaptive, requestsPerMinute, tokensPerMinute } = config
    this.#limit = new AdaptiveLimit({ maxConcurrency, adaptive, limits, onChange })
    this.#routes = routes
    this.#countsTokens = tokensPerMinute !== undefined
    if (requestsPerMinute === undefined && tokensPerMinute === undefined) return
    this.#rate = new RateLimit({ requestsPerMinute, tokensPerMinute, shared: limits })
  }

  /** Admits the call without waiting. False if that is not possible: then it holds neither a permit nor a ticket. */
  admitNow(call: OngoingCall): boolean {
    if (this.#rate && call.reserved === undefined) {
      const tokens = this.#estimate(call.request)
      if (!this.#rate.tryTake(tokens)) return false
      call.reserved = tokens
    }
    return this.#limit.tryAcquire() && this.#enter(call)
  }

  /**
   * Admits the call, waiting for the reservation, the permit or the ticket. A parked call holds no permit. The wait of the call
   * has begun: it ends this if it takes too long.
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
      if (route.gate.canEnter) {
        if (!this.#limit.tryAcquire()) await this.#limit.acquire(signal)
        // The gate may have closed while this call waited for the permit, so it is asked only now.
        if (this.#enter(call)) return
        continue
      }
      if (route.lastFailure) {
        call.wait.parked(route.lastFailure)
        call.hooks.onParked?.(route.lastFailure)
      }
      const ticket = await route.gate.park(signal)
      // Another backend answers: choose again.
      if (!ticket) continue
      try {
        if (!this.#limit.tryAcquire()) await this.#limit.acquire(signal)
      } catch (error) {
        route.gate.leave(ticket, 'cancelled')
        throw error
      }
      // The model may have got other backends while this call waited for the permit.
      if (!this.#routes.all.includes(route)) {
        this.#limit.release()
        continue
      }
      call.ticket = ticket
      route.noteSent()
      return
    }
  }

  answered(call: OngoingCall, reply: BackendReply): void {
    this.#free(call, this.#usedBy(reply, call.request))
    this.#limit.onSuccess()
    leave(call, 'answered')
  }

  /** True if the failed try is excused: the failure lies with the backend and not with the request. */
  failed(call: OngoingCall, rule: RetryRule, retryAfterMs: number | undefined): boolean {
    this.#free(call, 0)
    if (rule.cutsConcurrency) this.#limit.onRateLimited(retryAfterMs)
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

  /** Rejects all calls that wait. */
  shut(): void {
    this.#rate?.shut()
    for (const { gate } of this.#routes.all) gate.shut()
  }

  /** Asks the gate for a ticket. The caller has a permit already, which is given back if there is no ticket. */
  #enter(call: OngoingCall): boolean {
    const route = this.#routes.choose(call)
    call.route = route
    call.ticket = route.gate.enter()
    if (call.ticket) route.noteSent()
    else this.#limit.release()
    return call.ticket !== undefined
  }

  #free(call: OngoingCall, used: number): void {
    this.#limit.release()
    routeOf(call).noteEnded()
    this.settle(call, used)
  }

  #estimate({ messages, sampling }: ModelRequest): number {
    return this.#countsTokens ? estimatedTokens(messages) + (sampling.maxTokens ?? assumedReplyTokens) : 0
  }

  /** The tokens of a reply. If the server reports none, they are counted from its token ids, or estimated from its text. */
  #usedBy(reply: BackendReply, { messages }: ModelRequest): number {
    const reported = reply.usage.input + reply.usage.output
    if (reported > 0 || !this.#countsTokens) return reported
    const { input, output } = untoldUsage(reply, messages)
    return input + output
  }
}

/** Tells the gate the result of the try. True if the failure is excused. */
function leave(call: OngoingCall, result: RetryRule['evidence'] | 'cancelled', retryAfterMs?: number): boolean {
  const { ticket } = call
  call.ticket = undefined
  return ticket !== undefined && routeOf(call).gate.leave(ticket, result, retryAfterMs)
}
