import { MillraceError } from '../../errors/index.ts'
import { closeAll, Resource, Semaphore, ThreadWaker } from '../../kit/index.ts'
import { GateCells, mostPlaces } from './_gate-cells.ts'
import type { GrantMessage } from './lease-messages.ts'
import { LimitLease } from './limit-lease.ts'
import type { ModelConfig } from '../model-config.ts'
import type { LimitChange, ModelStatus } from '../model-contract.ts'
import { fillCells, statusOf } from './model-limits.ts'
import {
  bytesOfCells,
  mapCells,
  shapeOf,
  type CellMap,
  type LimitCells,
  type LimitShape,
} from './shared-limits-cells.ts'
import type { SharedHandle } from './worker-limits.ts'

export interface SharedLimitsOptions {
  /** How many workers can have a place at the same time, including those that overlap when one replaces another. */
  readonly slots: number
  /** Permits that belong to no model, by name. */
  readonly permits?: Readonly<Record<string, number>>
  /** A limit has moved because of what processes have learned; threads report their changes by themselves. */
  readonly onLimitChange?: (change: LimitChange) => void
}

const auditAgainMs = 5

/**
 * The limits of all models, owned in one place and used by many workers, for which they hold together. A thread gets a handle
 * to their memory, a process a lease. When a worker is gone, its place is taken back.
 */
export class SharedLimits extends Resource {
  /** One less than the places, because the owner has a place, too. */
  static readonly maxSlots = mostPlaces - 1
  readonly #shapes: readonly LimitShape[]
  readonly #options: SharedLimitsOptions
  readonly #places: number
  readonly #memory: SharedArrayBuffer
  readonly #map: CellMap
  /** The owner's permits, at a place after those of the workers. */
  readonly #permits: readonly Semaphore[]
  readonly #threads = new Set<number>()
  readonly #leases = new Map<number, LimitLease>()

  private constructor(models: readonly ModelConfig[], options: SharedLimitsOptions) {
    super()
    this.#options = options
    this.#places = options.slots + 1
    const permits = Object.entries(options.permits ?? {})
    this.#shapes = [
      ...models.map(shapeOf),
      ...permits.map(([name, maxConcurrency]) => ({ name, maxConcurrency, adaptive: false, backends: 0 })),
    ]
    this.#memory = new SharedArrayBuffer(bytesOfCells(this.#shapes, this.#places))
    this.#map = mapCells(this.#shapes, this.#places, this.#memory)
    fillCells(this.#map, this.#shapes)
    const { wakeCounters, limits } = this.#map
    this.#permits = limits.map((cells) => {
      return new Semaphore({
        cells: cells.permits,
        place: options.slots,
        wake: (place) => ThreadWaker.wake(wakeCounters, place),
      })
    })
  }

  static create(models: readonly ModelConfig[], options: SharedLimitsOptions): SharedLimits {
    if (options.slots > SharedLimits.maxSlots) {
      throw new MillraceError('config_invalid', `at most ${SharedLimits.maxSlots} workers can share limits: use fewer`)
    }
    return new SharedLimits(models, options)
  }

  /**
   * A handle for the start message of a thread, which opens it with `openLimits`. `workers`: how many workers divide the
   * descriptors of this process.
   */
  handle(slot: number, { workers = this.#options.slots }: { workers?: number } = {}): SharedHandle {
    this.#check(slot)
    this.#threads.add(slot)
    this.#divideRates()
    return {
      kind: 'shared',
      shapes: this.#shapes,
      places: this.#places,
      place: slot,
      memory: this.#memory,
      workers,
    }
  }

  /** A lease for a process: `lease.handle` goes into its start message; messages are passed on both ways, in order. */
  lease(slot: number, send: (message: GrantMessage) => void): LimitLease {
    this.#check(slot)
    this.#divideRates(this.#leases.size + 1)
    const lease = new LimitLease({
      shapes: this.#shapes,
      map: this.#map,
      place: slot,
      send,
      onLimitChange: (change) => this.#options.onLimitChange?.(change),
      onChange: () => this.#refreshLeases(),
    })
    this.#leases.set(slot, lease)
    this.#map.lenders[slot] = 1
    return lease
  }

  /** Takes back all that the worker of that slot held, because it is gone. Then the slot may be given to another worker. */
  reclaim(slot: number): void {
    void this.#leases.get(slot)?.close()
    this.#leases.delete(slot)
    this.#threads.delete(slot)
    this.#map.lenders[slot] = 0
    for (const permits of this.#permits) if (!permits.reclaim(slot)) this.#audit(permits)
    for (const cells of this.#map.limits) reclaimCells(cells, slot)
    this.#divideRates()
    ThreadWaker.wakeAll(this.#map.wakeCounters)
  }

  /** The status of every model, all workers together. */
  status(): readonly ModelStatus[] {
    return this.#shapes.flatMap((shape, index) => {
      return shape.backends === 0 ? [] : [statusOf(shape.name, this.#map.limits[index] as LimitCells)]
    })
  }

  protected onClose(): Promise<void> {
    return closeAll([...this.#leases.values()])
  }

  /** Puts the sums right after a thread was ended while it counted. Counting takes nanoseconds, so one look is usually enough. */
  #audit(permits: Semaphore): void {
    if (permits.audit() || this.isClosed) return
    setTimeout(() => this.#audit(permits), auditAgainMs).unref()
  }

  #check(slot: number): void {
    const { slots } = this.#options
    if (slot < 0 || slot >= slots) throw new MillraceError('internal', `there is no slot ${slot}: there are ${slots}`)
    if (this.#leases.has(slot) || this.#threads.has(slot)) {
      throw new MillraceError('internal', `slot ${slot} is taken. Reclaim it first.`)
    }
  }

  /** All threads together are one party, because they share the buckets. */
  #divideRates(processes = this.#leases.size): void {
    this.#map.parties[0] = Math.max(1, processes + (this.#threads.size > 0 ? 1 : 0))
    this.#refreshLeases()
  }

  #refreshLeases(): void {
    for (const lease of this.#leases.values()) lease.refresh()
  }
}

function reclaimCells(cells: LimitCells, slot: number): void {
  cells.rateWaiting[slot] = 0
  for (const backend of cells.backends) {
    backend.parked[slot] = 0
    backend.inFlight[slot] = 0
    new GateCells(backend).reclaim(slot)
  }
}
