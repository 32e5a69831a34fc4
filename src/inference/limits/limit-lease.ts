import { Resource, Semaphore, ThreadWaker } from '../../kit/index.ts'
import { AdaptiveLimit } from './adaptive-limit.ts'
import { Counter } from './counter.ts'
import { GateLink } from './_gate-link.ts'
import type { GateNews, GrantMessage, LeaseMessage } from './lease-messages.ts'
import type { LimitChange } from '../model-contract.ts'
import type { CellMap, LimitCells, LimitShape } from './shared-limits-cells.ts'
import type { LeasedHandle } from './worker-limits.ts'

export interface LimitLeaseOptions {
  readonly shapes: readonly LimitShape[]
  readonly map: CellMap
  readonly place: number
  readonly send: (message: GrantMessage) => void
  readonly onLimitChange: (change: LimitChange) => void
  /** Makes all leases check whether something has changed for them. */
  readonly onChange: () => void
}

/**
 * The owner's end of the limits of one process. It has a place in the shared memory on behalf of the process, waits there for
 * as many permits as the process wants, and sends them on as they come, many in one message.
 */
export class LimitLease extends Resource {
  /** The handle for the start message of the process. */
  readonly handle: LeasedHandle
  readonly #options: LimitLeaseOptions
  readonly #limits: readonly LentLimit[]
  readonly #waker: ThreadWaker

  constructor(options: LimitLeaseOptions) {
    super()
    const { shapes, map, place } = options
    this.#options = options
    this.#limits = shapes.map((shape, index) => new LentLimit(index, shape, options))
    const gates = this.#limits.map((limit) => limit.gateNews())
    this.handle = { kind: 'leased', shapes, parties: map.parties[0] as number, gates }
    this.#waker = new ThreadWaker(map.wakeCounters, place)
    this.#waker.onWake(() => {
      for (const limit of this.#limits) limit.collect()
      this.refresh()
    })
  }

  /** Takes a message of the process. Ignored once the lease is closed, because its place was taken back. */
  receive(message: LeaseMessage): void {
    if (this.isClosed) return
    this.#limits[message.limit]?.receive(message)
    this.#options.onChange()
  }

  /** Tells the process what has changed for it. */
  refresh(): void {
    if (this.isClosed) return
    for (const limit of this.#limits) limit.refresh()
  }

  protected onClose(): Promise<void> {
    for (const limit of this.#limits) limit.close()
    return this.#waker.close()
  }
}

/** One limit of the process, on the owner's side. */
class LentLimit {
  readonly #index: number
  readonly #options: LimitLeaseOptions
  readonly #cells: LimitCells
  readonly #permits: Semaphore
  readonly #adaptive: AdaptiveLimit
  readonly #gates: GateLink
  /** One controller for each permit that is waited for. */
  readonly #asked: AbortController[] = []
  #granted = 0
  #isRecalled = false
  #parties: number

  constructor(index: number, shape: LimitShape, options: LimitLeaseOptions) {
    const { map, place, onLimitChange } = options
    const { name, maxConcurrency, adaptive } = shape
    const cells = map.limits[index] as LimitCells
    this.#index = index
    this.#options = options
    this.#cells = cells
    this.#permits = new Semaphore({
      cells: cells.permits,
      place,
      wake: (other) => ThreadWaker.wake(map.wakeCounters, other),
    })
    this.#adaptive = new AdaptiveLimit({
      maxConcurrency,
      adaptive,
      limits: { permits: this.#permits, cells },
      onChange: (from, to, why) => onLimitChange({ model: name, at: Date.now(), kind: 'concurrency', from, to, why }),
    })
    this.#gates = new GateLink(cells.backends)
    this.#parties = map.parties[0] as number
  }

  collect(): void {
    this.#permits.collect()
  }

  gateNews(): GateNews[] {
    return this.#gates.news()
  }

  receive(message: LeaseMessage): void {
    const { map, place } = this.#options
    while (this.#asked.length > message.wanted) this.#asked.pop()?.abort()
    while (this.#asked.length < message.wanted) this.#ask()
    // Only after asking: a process that gives permits back and wants them again has a claim to them, too.
    for (let count = 0; count < message.returned; count += 1) this.#permits.release()
    for (let count = 0; count < message.answered; count += 1) this.#adaptive.onSuccess()
    for (const retryAfterMs of message.refusals) this.#adaptive.onRateLimited(retryAfterMs)
    new Counter(this.#cells.calls, place).add(message.calls)
    new Counter(this.#cells.tries, place).add(message.tries)
    this.#cells.rateWaiting[place] = message.rateWaiting
    for (const [index, { inFlight, parked }] of this.#cells.backends.entries()) {
      inFlight[place] = message.inFlight[index] ?? 0
      parked[place] = message.parked[index] ?? 0
    }
    if (this.#gates.learn(message.gates)) ThreadWaker.wakeAll(map.wakeCounters)
  }

  refresh(): void {
    const { waiting, waitingHere, held, limit } = this.#permits
    const isRecalled = waiting > waitingHere || held > limit
    const parties = this.#options.map.parties[0] as number
    const gates = this.#gates.news()
    const hasChanged = isRecalled !== this.#isRecalled || parties !== this.#parties || gates.length > 0
    const granted = this.#granted
    if (!hasChanged && granted === 0) return
    this.#granted = 0
    this.#isRecalled = isRecalled
    this.#parties = parties
    this.#options.send({ limit: this.#index, granted, isRecalled, parties, gates })
  }

  close(): void {
    for (const ask of this.#asked.splice(0)) ask.abort()
  }

  #ask(): void {
    const ask = new AbortController()
    this.#asked.push(ask)
    this.#permits.acquire(ask.signal).then(
      () => {
        this.#asked.splice(this.#asked.indexOf(ask), 1)
        this.#granted += 1
        // Permits that are granted together go in one message: their callbacks all run before this microtask.
        if (this.#granted === 1) queueMicrotask(() => this.refresh())
      },
      () => undefined,
    )
  }
}
