import type { Backend, ModelRequest } from '../../apis/index.ts'
import type { MillraceError } from '../../errors/index.ts'
import { type Semaphore, WaitList } from '../../kit/index.ts'
import type { ModelConfig } from '../config.ts'
import { CircuitBreaker } from '../limits/circuit-breaker.ts'
import type { LimitChange } from '../model-client.ts'
import { PauseGate } from './pause-gate.ts'

/** A backend with its breaker and the count of requests on their way to it. */
export class BackendRoute {
  readonly backend: Backend
  readonly breaker: CircuitBreaker
  readonly gate: PauseGate
  /** Why the last failed try at this backend failed. */
  lastFailure: MillraceError | undefined
  /** Requests of this worker on their way to the backend. */
  inFlight = 0
  #onIdle: (() => void) | undefined
  readonly #onResume: () => void
  /** When the backend's last answer was complete, and the longest it ever took to begin one. */
  #answeredAt = 0
  #longestGapMs = 0

  /** `onResume`: a pause of the backend has ended. */
  constructor(
    backend: Backend,
    breaker: CircuitBreaker,
    { gate, onResume }: { gate: PauseGate; onResume: () => void },
  ) {
    this.backend = backend
    this.breaker = breaker
    this.gate = gate
    this.#onResume = onResume
    gate.onResume(onResume)
  }

  get canEnter(): boolean {
    return !this.gate.isPaused && this.breaker.canEnter
  }

  noteEnded(): void {
    this.inFlight -= 1
    if (this.inFlight === 0) this.#onIdle?.()
  }

  /** Takes the route out of use: calls parked here choose another one. Resolves when its requests on their way have ended. */
  retire(): Promise<void> {
    this.breaker.dismiss()
    this.shut()
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#onIdle = resolve
    if (this.inFlight === 0) resolve()
    return promise
  }

  shut(): void {
    this.breaker.shut()
    this.gate.offResume(this.#onResume)
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

/** A call as far as the choice of its backend depends on it. */
export interface RoutedCall {
  readonly request: ModelRequest
  hasFailedAt(route: BackendRoute): boolean
  /** All backends have failed the call: none is preferred to another any more. */
  forgetFailures(): void
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
  /** Calls that found all backends paused. */
  readonly #paused = new WaitList()

  get isPaused(): boolean {
    return this.all.every(({ gate }) => gate.isPaused)
  }

  get paused(): number {
    return this.#paused.size
  }

  /** Resolves when a backend is not paused any more, or was added. */
  resumed(signal: AbortSignal): Promise<void> {
    return signal.aborted ? Promise.reject(signal.reason) : this.#paused.wait(signal, undefined)
  }

  /** Lets all calls choose again. Those that wait for a pause do so together, when all backends that end it now have done so. */
  wake(): void {
    for (const { breaker } of this.all) breaker.dismiss()
    if (this.paused > 0) setImmediate(() => this.#paused.resolveAll())
  }

  shut(reason: () => unknown): void {
    this.#paused.rejectAll(reason)
    for (const route of this.all) route.shut()
  }

  /**
   * The backend to use now; undefined if all are paused. If its breaker is open, all breakers are, and the call has to park there.
   */
  choose(call: RoutedCall): BackendRoute | undefined {
    if (this.isPaused) return undefined
    const { all } = this
    if (all.length === 1) return all[0]
    const { sessionId } = call.request
    const pinned = this.#pinned.get(sessionId)
    const isUsable = pinned && pinned.canEnter && !call.hasFailedAt(pinned)
    const route = isUsable ? pinned : (this.#leastBusy(call) ?? this.#leastParked(pinned))
    // A session goes back to a backend that was only paused.
    if (!pinned?.gate.isPaused || !all.includes(pinned)) this.#pin(sessionId, route)
    return route
  }

  /** Whether another try could go to a different backend at once: one that is usable and has not failed this call. */
  hasFreshRoute(call: RoutedCall): boolean {
    return this.all.length > 1 && this.all.some((route) => route.canEnter && !call.hasFailedAt(route))
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

  #leastBusy(call: RoutedCall): BackendRoute | undefined {
    const usable = this.all.filter((route) => route.canEnter)
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
    const open = this.all.filter(({ gate }) => !gate.isPaused)
    const recovering = open.filter((route) => route.breaker.isRecovering)
    if (pinned && recovering.includes(pinned)) return pinned
    const candidates = recovering.length > 0 ? recovering : open
    return candidates.reduce((best, route) => (route.breaker.parked < best.breaker.parked ? route : best))
  }
}

export interface BackendRouteOptions {
  readonly config: ModelConfig
  readonly permits: Semaphore
  readonly random: () => number
  /** The gate before a backend, which all models that it serves share. Default: one of its own. */
  readonly gateOf?: ((backend: Backend) => PauseGate) | undefined
  readonly report: (kind: 'parked' | 'released', change: Pick<LimitChange, 'from' | 'to' | 'why'>) => void
}

/** Failures in a row that make a backend count as overloaded; fewer where fewer tries are allowed. */
const overloadThreshold = 5

/** Makes the route to one backend of a model, with a breaker of its own. `routes` is the live list of the model's routes. */
export function routeTo(backend: Backend, routes: BackendRoutes, options: BackendRouteOptions): BackendRoute {
  const { config, permits, random, report, gateOf } = options
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
  const gate = gateOf?.(backend) ?? new PauseGate()
  const route: BackendRoute = new BackendRoute(backend, breaker, { gate, onResume: () => routes.wake() })
  return route
}
