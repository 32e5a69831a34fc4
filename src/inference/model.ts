import { MillraceError } from '../errors/index.ts'
import { Resource, sleep, type Draft } from '../kit/index.ts'
import { AdaptiveLimit } from './limits/adaptive-limit.ts'
import type { Backend, BackendReply, ModelRequest } from './backend.ts'
import { estimatedTokens } from './estimated-tokens.ts'
import { Counter } from './limits/counter.ts'
import { Lane, Lanes } from './_lanes.ts'
import { modelCalls, type ModelCall } from './model-calls.ts'
import type { ModelConfig, Price } from './model-config.ts'
import type { CallHooks, LimitChange, ModelClient, ModelStatus } from './model-contract.ts'
import { ownLimits, statusOf, type ModelLimits } from './limits/model-limits.ts'
import type { CallFacts, CompleteReply, ModelReply } from './model-reply.ts'
import { OverloadGate, type GatePlace } from './limits/overload-gate.ts'
import { PendingCall } from './_pending-call.ts'
import { costOf, modelPrice } from './prices.ts'
import { RateLimit } from './limits/rate-limit.ts'
import { replyFlaw, tryFailure } from './_backend-faults.ts'
import { retryDelayMs, retryRule } from './retry-table.ts'
import { shapeOf } from './limits/shared-limits-cells.ts'

export interface ModelOptions {
  readonly onLimitChange?: (change: LimitChange) => void
  readonly random?: () => number
  /** Shared with other workers; without it the model's limits are its own. */
  readonly limits?: ModelLimits
}

/** Failures in a row that make a backend count as overloaded; fewer where fewer tries are allowed. */
const overloadThreshold = 5
/** What a reply is reckoned at against the tokens-per-minute limit when nothing bounds it. */
const assumedReplyTokens = 256

/**
 * A named policy over its backends: permits, rate limits, retries, parking, routing and accounting. When a permit is free
 * and nothing is wrong, a call goes straight to the backend; everything else happens only on the way there or back.
 * The backends stay open when it closes: they belong to whoever opened them.
 */
export class Model extends Resource implements ModelClient {
  readonly name: string
  readonly backends: readonly Backend[]
  readonly #config: ModelConfig
  readonly #options: ModelOptions
  readonly #random: () => number
  readonly #limit: AdaptiveLimit
  readonly #rate: RateLimit | undefined
  readonly #lanes: Lanes
  readonly #price: Price | undefined
  readonly #limits: ModelLimits
  readonly #calls: Counter
  readonly #tries: Counter
  readonly #stopFollowing: () => void

  constructor(config: ModelConfig, backends: readonly Backend[], options: ModelOptions = {}) {
    super()
    if (backends.length === 0) {
      throw new MillraceError('config_invalid', `model ${config.name} has no backend. Give it a url or the simulator.`)
    }
    this.name = config.name
    this.backends = backends
    this.#config = config
    this.#options = options
    this.#random = options.random ?? Math.random
    this.#price = modelPrice(config)
    const limits = options.limits ?? ownLimits({ ...shapeOf(config), backends: backends.length })
    const { cells, parties, place } = limits
    this.#limits = limits
    this.#calls = new Counter(cells.calls, place)
    this.#tries = new Counter(cells.tries, place)
    this.#limit = new AdaptiveLimit({
      maxConcurrency: config.maxConcurrency,
      adaptive: config.adaptive,
      limits,
      onChange: (from, to, why) => this.#report('concurrency', { from, to, why }),
    })
    const { requestsPerMinute, tokensPerMinute } = config
    if (requestsPerMinute !== undefined || tokensPerMinute !== undefined) {
      this.#rate = new RateLimit({ requestsPerMinute, tokensPerMinute, shared: { cells, parties, place } })
    }
    this.#lanes = new Lanes(backends.map((backend, index) => this.#laneTo(backend, index)))
    this.#stopFollowing = limits.onAnnounced(() => {
      for (const lane of this.#lanes.all) lane.gate.follow()
    })
  }

  call(request: ModelRequest, hooks: CallHooks): Promise<ModelReply> {
    return modelCalls.hasSubscribers ? this.#observed(request, hooks) : this.#carryOut(request, hooks)
  }

  async #observed(request: ModelRequest, hooks: CallHooks): Promise<ModelReply> {
    const call: ModelCall = { model: this.name, request, startedAt: performance.now() }
    modelCalls.publish({ kind: 'start', call })
    const { traceparent } = call
    const reply = await this.#carryOut(traceparent === undefined ? request : { ...request, traceparent }, hooks)
    modelCalls.publish({ kind: 'end', call, reply })
    return reply
  }

  /** Chained, not awaited, where it goes at once and is answered at the first try: as in `Session.turn`. */
  #carryOut(request: ModelRequest, hooks: CallHooks): Promise<ModelReply> {
    const call = new PendingCall(request, hooks)
    this.#calls.add(1)
    if (this.#isStopped(call)) return this.#persist(call)
    try {
      if (!this.#admitNow(call)) return this.#persist(call, 'waits')
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

  async #afterFailedTry(call: PendingCall, error: unknown): Promise<ModelReply> {
    return (await this.#onFailedTry(call, error)) ?? this.#persist(call)
  }

  /** The rest of a call that has to wait, whose first try failed, or that was stopped before it began. */
  async #persist(call: PendingCall, state?: 'waits'): Promise<ModelReply> {
    for (let mustWait = state === 'waits'; ; mustWait = false) {
      if (this.#isStopped(call)) return this.#broken(call, this.closedSignal.reason)
      if (mustWait || !this.#admitNow(call)) {
        try {
          await this.#waiting(call, this.#admit(call))
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

  #isStopped({ hooks }: PendingCall): boolean {
    return hooks.signal.aborted || this.isClosed
  }

  endSession(sessionId: string): void {
    this.#lanes.forget(sessionId)
    for (const backend of this.backends) backend.endSession?.(sessionId)
  }

  status(): ModelStatus {
    return statusOf(this.name, this.#limits.cells)
  }

  protected override async onClose(): Promise<void> {
    this.#stopFollowing()
    this.#rate?.shut()
    for (const lane of this.#lanes.all) lane.gate.shut()
  }

  /** Without waiting: a rate reservation, a permit and a ticket, or false with no permit and no ticket held. */
  #admitNow(call: PendingCall): boolean {
    if (this.#rate && call.reserved === undefined) {
      const tokens = this.#estimate(call.request)
      if (!this.#rate.tryTake(tokens)) return false
      call.reserved = tokens
    }
    if (!this.#limit.tryAcquire()) return false
    const lane = this.#lanes.choose(call)
    call.ticket = lane.gate.enter()
    call.lane = lane
    if (call.ticket) return true
    this.#limit.release()
    return false
  }

  /** The same, waiting for whatever is missing. Nobody holds a permit while parked. */
  async #admit(call: PendingCall): Promise<void> {
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
        // The gate may have closed while this waited for the permit, so it is asked only now.
        const now = this.#lanes.choose(call)
        call.lane = now
        call.ticket = now.gate.enter()
        if (call.ticket) return
        this.#limit.release()
        continue
      }
      const ticket = await lane.gate.park(signal)
      if (!ticket) continue
      try {
        if (!this.#limit.tryAcquire()) await this.#limit.acquire(signal)
      } catch (error) {
        lane.gate.leave(ticket, 'cancelled')
        throw error
      }
      call.ticket = ticket
      return
    }
  }

  #send(call: PendingCall): Promise<BackendReply> {
    const lane = laneOf(call)
    lane.inFlight.add(1)
    call.tries += 1
    this.#tries.add(1)
    call.sentAt = performance.now()
    call.hooks.onSend?.(call)
    try {
      // Somebody's own backend may have no need to wait.
      return Promise.resolve(lane.backend.send(call.nextTry()))
    } catch (error) {
      return Promise.reject(error)
    }
  }

  /** Waits until it may be tried again; or how the call ends, if it may not. */
  async #onFailedTry(call: PendingCall, thrown: unknown): Promise<ModelReply | undefined> {
    const { hooks } = call
    const error = tryFailure(thrown, call.backend)
    if (!hooks.signal.aborted) hooks.onFailedTry?.(performance.now() - call.sentAt, error)
    const delayMs = this.#onFailure(call, error)
    if (delayMs === undefined) return this.#broken(call, error)
    if (delayMs === 0) return undefined
    try {
      await this.#waiting(call, sleep(delayMs, hooks.signal))
      return undefined
    } catch (reason) {
      return this.#broken(call, reason)
    }
  }

  /** Gives everything back. How long to wait before the next try; undefined if there is none. */
  #onFailure(call: PendingCall, error: MillraceError): number | undefined {
    const lane = laneOf(call)
    this.#limit.release()
    lane.inFlight.add(-1)
    this.#settle(call, 0)
    const ticket = call.ticket
    call.ticket = undefined
    if (call.hooks.signal.aborted) {
      if (ticket) lane.gate.leave(ticket, 'cancelled')
      return undefined
    }
    if (modelCalls.hasSubscribers) modelCalls.publish({ kind: 'try-failed', model: this.name, error })
    const rule = retryRule(error.code)
    const asked = error.data['retryAfterMs']
    const retryAfterMs = typeof asked === 'number' ? asked : undefined
    if (rule.cutsConcurrency) this.#limit.onRateLimited(retryAfterMs)
    const isExcused = ticket !== undefined && lane.gate.leave(ticket, rule.evidence, retryAfterMs)
    call.failedAt(lane)
    if (call.hasBegun) return undefined
    // Somebody who allows one try wants to see it fail.
    if (isExcused && rule.counts === 'unless-parked' && this.#config.maxTries > 1) return 0
    call.counted += 1
    if (!rule.retried || call.counted >= this.#config.maxTries) return undefined
    if (this.#lanes.hasFreshLane(call)) return 0
    return retryDelayMs(rule, { failures: call.counted, retryAfterMs, random: this.#random })
  }

  #complete(call: PendingCall, reply: BackendReply): ModelReply {
    const lane = laneOf(call)
    this.#limit.release()
    this.#limit.onSuccess()
    lane.inFlight.add(-1)
    if (call.ticket) lane.gate.leave(call.ticket, 'answered')
    this.#settle(call, this.#usedBy(reply, call.request))
    const { message, finishReason, stopSequence, stopReason, usage, tokens, firstTokenMs, original, raw } = reply
    const { model, backend, tries, ms, waitMs } = this.#facts(call)
    lane.noteAnswer(call.sentAt + ms, firstTokenMs ?? ms)
    const cost = costOf(usage, this.#price)
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
    // Added afterwards: a literal with conditions in it is made field by field.
    if (stopSequence !== undefined) complete.stopSequence = stopSequence
    if (stopReason !== undefined) complete.stopReason = stopReason
    if (original) complete.original = original
    if (tokens) complete.tokens = tokens
    if (firstTokenMs !== undefined) complete.firstTokenMs = firstTokenMs
    if (raw) complete.raw = raw
    return complete
  }

  #broken(call: PendingCall, thrown: unknown): ModelReply {
    // A reservation for a try that never came.
    this.#settle(call, 0)
    const { signal } = call.hooks
    if (signal.aborted) {
      return { status: 'aborted', ...this.#facts(call), error: MillraceError.from(signal.reason, 'cancelled') }
    }
    const error = MillraceError.from(thrown, 'internal')
    return { status: error.code === 'model_truncated' ? 'truncated' : 'failed', ...this.#facts(call), error }
  }

  #facts(call: PendingCall): CallFacts {
    const now = performance.now()
    const sentAt = call.tries === 0 ? now : call.sentAt
    return {
      model: this.name,
      backend: call.backend,
      tries: call.tries,
      ms: now - sentAt,
      waitMs: sentAt - call.startedAt,
    }
  }

  /** The rollout's working clock stands still meanwhile. */
  async #waiting(call: PendingCall, work: Promise<void>): Promise<void> {
    const { hooks } = call
    hooks.onWaitStart?.()
    try {
      await work
    } finally {
      hooks.onWaitEnd?.()
    }
  }

  #settle(call: PendingCall, used: number): void {
    if (call.reserved === undefined) return
    this.#rate?.settle(call.reserved, used)
    call.reserved = undefined
  }

  #estimate({ messages, sampling }: ModelRequest): number {
    if (this.#config.tokensPerMinute === undefined) return 0
    return estimatedTokens(messages) + (sampling.maxTokens ?? assumedReplyTokens)
  }

  /** Not every server says it: then it is what came, or what the text of it comes to. */
  #usedBy({ usage, tokens, message }: BackendReply, { messages }: ModelRequest): number {
    const reported = usage.input + usage.output
    if (reported > 0 || this.#config.tokensPerMinute === undefined) return reported
    return (tokens?.promptIds?.length ?? estimatedTokens(messages)) + (tokens?.ids.length ?? estimatedTokens([message]))
  }

  #laneTo(backend: Backend, index: number): Lane {
    const { cells, place } = this.#limits
    const own = cells.backends[index]
    if (!own) throw new MillraceError('internal', `the shared limits of ${this.name} do not know ${backend.name}`)
    const gate = this.#gateFor(backend, { cells: own, place, announce: () => this.#limits.announce() })
    return new Lane(backend, gate, new Counter(own.inFlight, place))
  }

  #gateFor(backend: Backend, shared: GatePlace): OverloadGate {
    const { maxConcurrency, maxTries } = this.#config
    const gate: OverloadGate = new OverloadGate({
      threshold: maxTries === 1 ? overloadThreshold : Math.min(overloadThreshold, maxTries),
      maxConcurrency,
      random: this.#random,
      shared,
      onClose: (failures) => {
        const why = `${backend.name} failed ${failures} times in a row: requests park, one at a time probes it`
        this.#report('parked', { from: this.#limit.limit, to: 1, why })
      },
      onReopen: (closedMs, parked) => {
        const why = `${backend.name} answers again after ${(closedMs / 1000).toFixed(1)} s: ${parked} parked requests go on`
        this.#report('released', { from: 1, to: this.#limit.limit, why })
      },
      onRecovering: () => {
        for (const lane of this.#lanes.all) if (lane.gate !== gate) lane.gate.dismiss()
      },
    })
    return gate
  }

  #report(kind: LimitChange['kind'], change: Pick<LimitChange, 'from' | 'to' | 'why'>): void {
    this.#options.onLimitChange?.({ model: this.name, at: Date.now(), kind, ...change })
  }
}

/** Where a call was admitted. */
function laneOf({ lane }: PendingCall): Lane {
  return lane as Lane
}
