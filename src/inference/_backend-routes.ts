import type { MillraceError } from '../errors/index.ts'
import type { Backend } from './backend.ts'
import { Counter } from './limits/counter.ts'
import type { OverloadGate } from './limits/overload-gate.ts'
import type { OngoingCall } from './_ongoing-call.ts'
import type { BackendCells } from './limits/shared-limits-cells.ts'
import { StickyRoutes } from './sticky-routes.ts'

interface BackendRouteParts {
  readonly backend: Backend
  readonly gate: OverloadGate
  readonly cells: BackendCells
  readonly place: number
}

/** A backend with its gate and the count of requests on their way to it. */
export class BackendRoute {
  readonly backend: Backend
  readonly gate: OverloadGate
  readonly cells: BackendCells
  /** Why the last failed try at this backend failed; only tries of this worker are known. */
  lastFailure: MillraceError | undefined
  /** Requests on their way to the backend, from all workers. */
  readonly #inFlight: Counter
  #onIdle: (() => void) | undefined
  /** When the backend's last answer was complete, and the longest it ever took to begin one. */
  #answeredAt = 0
  #longestSilenceMs = 0

  constructor({ backend, gate, cells, place }: BackendRouteParts) {
    this.backend = backend
    this.gate = gate
    this.cells = cells
    this.#inFlight = new Counter(cells.inFlight, place)
  }

  get inFlight(): number {
    return this.#inFlight.value
  }

  /** A request is on its way. */
  noteSent(): void {
    this.#inFlight.add(1)
  }

  /** A request has ended, with or without an answer. */
  noteEnded(): void {
    this.#inFlight.add(-1)
    if (this.#onIdle && this.inFlight === 0) this.#onIdle()
  }

  /** Takes the route out of use: calls parked here choose another one. Resolves when its requests on their way have ended. */
  retire(): Promise<void> {
    this.gate.dismiss()
    this.gate.shut()
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#onIdle = resolve
    if (this.inFlight === 0) resolve()
    return promise
  }

  noteAnswer(answeredAt: number, silenceMs: number): void {
    this.#answeredAt = answeredAt
    if (silenceMs > this.#longestSilenceMs) this.#longestSilenceMs = silenceMs
  }

  /** Whether the backend has said nothing to any call since `sentAt`, and for longer than it ever took to begin an answer. */
  isSilentSince(sentAt: number): boolean {
    const heardAt = Math.max(this.#answeredAt, this.backend.heardAt ?? 0)
    return heardAt < sentAt && performance.now() - sentAt > this.#longestSilenceMs
  }
}

/**
 * Chooses the backend of a call. A session stays with its backend, because its prefix is cached there, unless that backend
 * failed this very call or its gate is closed while another one is open. New and moved sessions go to the backend with the
 * fewest requests on their way.
 */
export class BackendRoutes {
  #all: readonly BackendRoute[] = []
  readonly #sticky = new StickyRoutes<BackendRoute>()
  /** Where the search begins, so that equally idle backends take turns. */
  #turn = 0

  get all(): readonly BackendRoute[] {
    return this.#all
  }

  /** Replaces the routes. A session whose route is gone moves, because the gate of a retired route admits nothing. */
  set(routes: readonly BackendRoute[]): void {
    this.#all = routes
  }

  /** The backend to use now. If its gate is closed, all gates are, and the call has to park there. */
  choose(call: OngoingCall): BackendRoute {
    const { all } = this
    if (all.length === 1) return all[0] as BackendRoute
    const { sessionId } = call.request
    const pinned = this.#sticky.get(sessionId)
    if (pinned && pinned.gate.canEnter && !call.hasFailedAt(pinned)) {
      this.#sticky.set(sessionId, pinned)
      return pinned
    }
    const route = this.#leastBusy(call) ?? this.#leastParked(pinned)
    if (route !== pinned) this.#sticky.set(sessionId, route)
    return route
  }

  /** Whether another try could go to a different backend at once: one that is open and has not failed this call. */
  hasFreshRoute(call: OngoingCall): boolean {
    return this.all.length > 1 && this.all.some((route) => route.gate.canEnter && !call.hasFailedAt(route))
  }

  forget(sessionId: string): void {
    this.#sticky.forget(sessionId)
  }

  #leastBusy(call: OngoingCall): BackendRoute | undefined {
    const open = this.all.filter((route) => route.gate.canEnter)
    let candidates = open.filter((route) => !call.hasFailedAt(route))
    if (candidates.length === 0) {
      call.forgetFailures()
      candidates = open
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
    const recovering = this.all.filter((route) => route.gate.isRecovering)
    if (pinned && recovering.includes(pinned)) return pinned
    const candidates = recovering.length > 0 ? recovering : this.all
    let best: BackendRoute | undefined
    for (const route of candidates) if (!best || route.gate.parked < best.gate.parked) best = route
    return best as BackendRoute
  }
}
