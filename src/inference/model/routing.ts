import type { Backend, ModelRequest } from '../../apis/index.ts'
import type { MillraceError } from '../../errors/index.ts'
import { hash32, type Semaphore, WaitList } from '../../kit/index.ts'
import type { ModelConfig } from '../config.ts'
import { CircuitBreaker } from '../limits/circuit-breaker.ts'
import { BackendLoad } from '../limits/in-flight.ts'
import type { BackendStatus, LimitChange } from '../model-client.ts'
import { PauseGate } from './pause-gate.ts'
import type { Candidate, RoutingPolicy } from './routing-policy.ts'

/** A backend with its breaker, its load, and the gate that a pause shuts. */
export class BackendRoute implements Candidate {
  readonly backend: Backend
  readonly breaker: CircuitBreaker
  readonly gate: PauseGate
  readonly #onResume: () => void
  readonly load = new BackendLoad()
  readonly hash: number
  sessions = 0
  affinityBreaks = 0
  /** Why the last failed try at this backend failed. */
  lastFailure: MillraceError | undefined

  /** `onResume`: a pause of the backend has ended. */
  constructor(
    backend: Backend,
    breaker: CircuitBreaker,
    { gate, onResume }: { readonly gate: PauseGate; readonly onResume: () => void },
  ) {
    this.backend = backend
    this.breaker = breaker
    this.gate = gate
    this.#onResume = onResume
    this.hash = hash32(backend.name)
    gate.onResume(onResume)
  }

  get canEnter(): boolean {
    return !this.gate.isPaused && this.breaker.canEnter
  }

  /** Takes the route out of use: calls parked here choose another one. Resolves when its requests on their way have ended. */
  retire(): Promise<void> {
    this.breaker.dismiss()
    this.shut()
    return this.load.idle()
  }

  shut(): void {
    this.breaker.shut()
    this.gate.offResume(this.#onResume)
  }

  /** Whether the backend has said nothing to any call since `sentAt`, and for longer than it ever took to begin an answer. */
  isSilentSince(sentAt: number): boolean {
    const { answeredAt, longestGapMs } = this.load
    const lastByteAt = Math.max(answeredAt, this.backend.lastByteAt ?? 0)
    return lastByteAt < sentAt && performance.now() - sentAt > longestGapMs
  }

  status(): BackendStatus {
    const { requests, tokens, weight, engine } = this.load
    const { sessions, affinityBreaks } = this
    const figures = { inFlight: requests, contextTokens: tokens, sessions, weight, affinityBreaks }
    return { name: this.backend.name, ...figures, ...engine }
  }
}

/** A call as far as the choice of its backend depends on it. */
export interface RoutedCall {
  readonly request: ModelRequest
  /** The tokens of its context, as far as they are known: set when its backend is chosen among several. */
  contextTokens: number
  hasFailedAt(route: BackendRoute): boolean
  /** All backends have failed the call: of those only the last one counts from now on. */
  forgetFailures(): void
}

interface RoutedSession {
  readonly route: BackendRoute
  /** The tokens of the last prompt and its reply, of which the next prompt consists for the most part; 0 before any reply. */
  tokens: number
}

/** At most so many sessions are remembered. Beyond it the least recently used one is forgotten, and may move. */
const maxSessions = 65_536
/** A usual figure for English text and JSON. */
const charsPerToken = 4

/**
 * Chooses the backend of a call, by the policy of the model, among those whose breaker is closed and that have not failed this
 * very call. It remembers which backend a session is with, because its prefix is cached there.
 */
export class BackendRoutes {
  /** Replaced when the backends change. A session whose route is gone moves: the breaker of a retired route admits nothing. */
  all: readonly BackendRoute[] = []
  /** The backend of a model that has one: then nothing is chosen or remembered. */
  only: BackendRoute | undefined
  readonly #policy: RoutingPolicy
  // A Map iterates in insertion order, and `#pin` puts an entry at the end, so the first one is the least recently used.
  readonly #sessions = new Map<string, RoutedSession>()
  /** Calls that found all backends paused. */
  readonly #paused = new WaitList()

  constructor(policy: RoutingPolicy) {
    this.#policy = policy
  }

  use(routes: readonly BackendRoute[]): void {
    this.all = routes
    this.only = routes.length === 1 ? routes[0] : undefined
  }

  get isPaused(): boolean {
    return this.all.every(({ gate }) => gate.isPaused)
  }

  get canEnter(): boolean {
    return this.all.some((route) => route.canEnter)
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
    if (this.only) return this.only
    const { sessionId } = call.request
    const session = this.#sessions.get(sessionId)
    const before = session?.route
    call.contextTokens = session?.tokens || estimatedContext(call.request)
    const usable = this.#usable(call)
    const pinned = before && usable.includes(before) ? before : undefined
    const route =
      usable.length === 0
        ? this.#leastParked(before)
        : this.#policy({ usable, pinned, sessionId, contextTokens: call.contextTokens })
    // A session goes back to a backend that was only paused.
    if (!before?.gate.isPaused || !this.all.includes(before))
      this.#pin(sessionId, { route, tokens: session?.tokens ?? 0 })
    return route
  }

  /** Whether another try could go to a different backend at once: one that is usable and has not failed this call. */
  hasFreshRoute(call: RoutedCall): boolean {
    return this.only === undefined && this.all.some((route) => route.canEnter && !call.hasFailedAt(route))
  }

  /** The session has got a reply: its next prompt begins with these tokens. */
  noteReply(sessionId: string, tokens: number): void {
    const session = this.#sessions.get(sessionId)
    if (session && tokens > 0) session.tokens = tokens
  }

  forget(sessionId: string): void {
    const session = this.#sessions.get(sessionId)
    if (!session) return
    session.route.sessions -= 1
    this.#sessions.delete(sessionId)
  }

  #pin(sessionId: string, session: RoutedSession): void {
    this.forget(sessionId)
    this.#sessions.set(sessionId, session)
    session.route.sessions += 1
    if (this.#sessions.size <= maxSessions) return
    const [oldest = ''] = this.#sessions.keys()
    this.forget(oldest)
  }

  #usable(call: RoutedCall): readonly BackendRoute[] {
    const open = this.all.filter((route) => route.canEnter)
    let usable = open.filter((route) => !call.hasFailedAt(route))
    if (usable.length > 0) return usable
    call.forgetFailures()
    usable = open.filter((route) => !call.hasFailedAt(route))
    return usable.length > 0 ? usable : open
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

/** An estimate for a session that has no reply yet. Only lengths are looked at: nothing is written or counted for it. */
function estimatedContext({ body, prompt, messages }: ModelRequest): number {
  if (prompt) return prompt.length
  if (body) return Math.ceil(body.length / charsPerToken)
  let chars = 0
  for (const { content } of messages) if (typeof content === 'string') chars += content.length
  return Math.ceil(chars / charsPerToken)
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
