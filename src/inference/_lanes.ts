import type { MillraceError } from '../errors/index.ts'
import type { Backend } from './backend.ts'
import { Counter } from './limits/counter.ts'
import type { OverloadGate } from './limits/overload-gate.ts'
import type { PendingCall } from './_pending-call.ts'
import type { BackendCells } from './limits/shared-limits-cells.ts'
import { StickyRoutes } from './sticky-routes.ts'

interface LaneParts {
  readonly backend: Backend
  readonly gate: OverloadGate
  readonly cells: BackendCells
  readonly place: number
}

/** A backend with its gate and the count of requests on their way to it. */
export class Lane {
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

  constructor({ backend, gate, cells, place }: LaneParts) {
    this.backend = backend
    this.gate = gate
    this.cells = cells
    this.#inFlight = new Counter(cells.inFlight, place)
  }

  get inFlight(): number {
    return this.#inFlight.value
  }

  /** A request is on its way. */
  depart(): void {
    this.#inFlight.add(1)
  }

  /** A request has ended, with or without an answer. */
  arrive(): void {
    this.#inFlight.add(-1)
    if (this.#onIdle && this.inFlight === 0) this.#onIdle()
  }

  /** Takes the lane out of use: calls parked here choose another one. Resolves when its requests on their way have ended. */
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
export class Lanes {
  #all: readonly Lane[] = []
  readonly #sticky = new StickyRoutes<Lane>()
  /** Where the search begins, so that equally idle backends take turns. */
  #turn = 0

  get all(): readonly Lane[] {
    return this.#all
  }

  /** Replaces the lanes. A session whose lane is gone moves, because the gate of a retired lane admits nothing. */
  set(lanes: readonly Lane[]): void {
    this.#all = lanes
  }

  /** The backend to use now. If its gate is closed, all gates are, and the call has to park there. */
  choose(call: PendingCall): Lane {
    const { all } = this
    if (all.length === 1) return all[0] as Lane
    const { sessionId } = call.request
    const pinned = this.#sticky.get(sessionId)
    if (pinned && pinned.gate.canEnter && !call.hasFailedAt(pinned)) {
      this.#sticky.set(sessionId, pinned)
      return pinned
    }
    const lane = this.#leastBusy(call) ?? this.#leastParked(pinned)
    if (lane !== pinned) this.#sticky.set(sessionId, lane)
    return lane
  }

  /** Whether another try could go to a different backend at once: one that is open and has not failed this call. */
  hasFreshLane(call: PendingCall): boolean {
    return this.all.length > 1 && this.all.some((lane) => lane.gate.canEnter && !call.hasFailedAt(lane))
  }

  forget(sessionId: string): void {
    this.#sticky.forget(sessionId)
  }

  #leastBusy(call: PendingCall): Lane | undefined {
    const open = this.all.filter((lane) => lane.gate.canEnter)
    let candidates = open.filter((lane) => !call.hasFailedAt(lane))
    if (candidates.length === 0) {
      call.forgetFailures()
      candidates = open
    }
    this.#turn += 1
    let best: Lane | undefined
    for (let step = 0; step < candidates.length; step += 1) {
      const lane = candidates[(this.#turn + step) % candidates.length] as Lane
      if (!best || lane.inFlight < best.inFlight) best = lane
    }
    return best
  }

  /** Where to park: at a backend that answers again, if there is one, because its queue is moving. */
  #leastParked(pinned: Lane | undefined): Lane {
    const recovering = this.all.filter((lane) => lane.gate.isRecovering)
    if (pinned && recovering.includes(pinned)) return pinned
    const candidates = recovering.length > 0 ? recovering : this.all
    let best: Lane | undefined
    for (const lane of candidates) if (!best || lane.gate.parked < best.gate.parked) best = lane
    return best as Lane
  }
}
