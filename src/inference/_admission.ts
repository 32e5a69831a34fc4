import { AdaptiveLimit } from './limits/adaptive-limit.ts'
import type { BackendReply, ModelRequest } from './backend.ts'
import { estimatedTokens } from './estimated-tokens.ts'
import type { Lanes } from './_lanes.ts'
import type { ModelConfig } from './model-config.ts'
import type { ModelLimits } from './limits/model-limits.ts'
import { laneOf, type PendingCall } from './_pending-call.ts'
import { RateLimit } from './limits/rate-limit.ts'
import type { RetryRule } from './retry-table.ts'
import { untoldUsage } from './untold-usage.ts'

export interface AdmissionOptions {
  readonly config: ModelConfig
  readonly limits: ModelLimits
  readonly lanes: Lanes
  /** Called when the number of requests that may be on their way at once has changed. */
  readonly onChange: (from: number, to: number, why: string) => void
}

/** The tokens that are reserved for a reply if the request does not set `maxTokens`. */
const assumedReplyTokens = 256

/**
 * Lets calls go to a model: each try needs a reservation of the rate, a permit, and a ticket of the gate of its backend. For
 * each try that was admitted the caller reports the result once: `answered`, `failed` or `cancelled`.
 */
export class Admission {
  readonly #limit: AdaptiveLimit
  readonly #rate: RateLimit | undefined
  readonly #lanes: Lanes
  readonly #countsTokens: boolean

  constructor({ config, limits, lanes, onChange }: AdmissionOptions) {
    const { maxConcurrency, adaptive, requestsPerMinute, tokensPerMinute } = config
    this.#limit = new AdaptiveLimit({ maxConcurrency, adaptive, limits, onChange })
    this.#lanes = lanes
    this.#countsTokens = tokensPerMinute !== undefined
    if (requestsPerMinute === undefined && tokensPerMinute === undefined) return
    this.#rate = new RateLimit({ requestsPerMinute, tokensPerMinute, shared: limits })
  }

  /** Admits the call without waiting. False if that is not possible: then it holds neither a permit nor a ticket. */
  admitNow(call: PendingCall): boolean {
    if (this.#rate && call.reserved === undefined) {
      const tokens = this.#estimate(call.request)
      if (!this.#rate.tryTake(tokens)) return false
      call.reserved = tokens
    }
    return this.#limit.tryAcquire() && this.#enter(call)
  }

  /** Admits the call, waiting for the reservation, the permit or the ticket. A parked call holds no permit. */
  async admit(call: PendingCall): Promise<void> {
    const { signal } = call.hooks
    if (this.#rate && call.reserved === undefined) {
      const tokens = this.#estimate(call.request)
      await this.#rate.take(tokens, signal)
      call.reserved = tokens
    }
    for (;;) {
      const lane = this.#lanes.choose(call)
      call.lane = lane
      if (lane.gate.canEnter) {
        if (!this.#limit.tryAcquire()) await this.#limit.acquire(signal)
        // The gate may have closed while this call waited for the permit, so it is asked only now.
        if (this.#enter(call)) return
        continue
      }
      if (lane.lastFailure) call.hooks.onParked?.(lane.lastFailure)
      const ticket = await lane.gate.park(signal)
      // Another backend answers: choose again.
      if (!ticket) continue
      try {
        if (!this.#limit.tryAcquire()) await this.#limit.acquire(signal)
      } catch (error) {
        lane.gate.leave(ticket, 'cancelled')
        throw error
      }
      // The model may have got other backends while this call waited for the permit.
      if (!this.#lanes.all.includes(lane)) {
        this.#limit.release()
        continue
      }
      call.ticket = ticket
      lane.depart()
      return
    }
  }

  answered(call: PendingCall, reply: BackendReply): void {
    this.#free(call, this.#usedBy(reply, call.request))
    this.#limit.onSuccess()
    leave(call, 'answered')
  }

  /** True if the failed try is excused: the failure lies with the backend and not with the request. */
  failed(call: PendingCall, rule: RetryRule, retryAfterMs: number | undefined): boolean {
    this.#free(call, 0)
    if (rule.cutsConcurrency) this.#limit.onRateLimited(retryAfterMs)
    return leave(call, rule.evidence, retryAfterMs)
  }

  /** The caller gave the call up while a try was on its way. */
  cancelled(call: PendingCall): void {
    this.#free(call, 0)
    leave(call, 'cancelled')
  }

  /** Corrects the reservation of a try, if there is one, to the tokens it used; 0 if the try was never sent. */
  settle(call: PendingCall, used: number): void {
    if (call.reserved === undefined) return
    this.#rate?.settle(call.reserved, used)
    call.reserved = undefined
  }

  /** Rejects all calls that wait. */
  shut(): void {
    this.#rate?.shut()
    for (const { gate } of this.#lanes.all) gate.shut()
  }

  /** Asks the gate for a ticket. The caller has a permit already, which is given back if there is no ticket. */
  #enter(call: PendingCall): boolean {
    const lane = this.#lanes.choose(call)
    call.lane = lane
    call.ticket = lane.gate.enter()
    if (call.ticket) lane.depart()
    else this.#limit.release()
    return call.ticket !== undefined
  }

  #free(call: PendingCall, used: number): void {
    this.#limit.release()
    laneOf(call).arrive()
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
function leave(call: PendingCall, result: RetryRule['evidence'] | 'cancelled', retryAfterMs?: number): boolean {
  const { ticket } = call
  call.ticket = undefined
  return ticket !== undefined && laneOf(call).gate.leave(ticket, result, retryAfterMs)
}
