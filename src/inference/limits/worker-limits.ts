import { MillraceError } from '../../errors/index.ts'
import { Semaphore, ThreadWaker } from '../../kit/index.ts'
import { LeasedLimits } from './leased-limits.ts'
import type { GateNews, GrantMessage, LeaseMessage } from './lease-messages.ts'
import type { ModelLimits } from './model-limits.ts'
import { NamedLimits } from './_named-limits.ts'
import { mapCells, type LimitShape } from './shared-limits-cells.ts'

/** What a worker is started with, so that it can open its end of the limits. A thread can be sent either kind. */
export type LimitsHandle = SharedHandle | LeasedHandle

/** The handle for a thread of this process. */
export interface SharedHandle {
  readonly kind: 'shared'
  readonly shapes: readonly LimitShape[]
  readonly places: number
  readonly place: number
  readonly memory: SharedArrayBuffer
  /** How many workers divide the descriptors of this process. */
  readonly workers: number
}

/** The handle for another process. */
export interface LeasedHandle {
  readonly kind: 'leased'
  readonly shapes: readonly LimitShape[]
  readonly parties: number
  /** The closed gates of each limit. */
  readonly gates: readonly (readonly GateNews[])[]
}

/** A worker's end of the limits. Close it after the models that use it. */
export interface WorkerLimits extends AsyncDisposable {
  /** How many workers divide the descriptors of this process. */
  readonly workers: number
  model(name: string): ModelLimits
  /** Permits that belong to no model. */
  permits(name: string): Semaphore
  /** Takes a message of the owner, which sends them only to processes. */
  receive(message: GrantMessage): void
}

/** Opens a worker's end of the limits. `send` reaches the owner's `LimitLease.receive`; a thread has no use for it. */
export function openLimits(handle: LimitsHandle, send: (message: LeaseMessage) => void): WorkerLimits {
  return handle.kind === 'shared' ? new ThreadLimits(handle) : new LeasedLimits(handle, send)
}

/** A thread's end: all state is in memory that all threads see; `ThreadWaker` only wakes threads that wait. */
class ThreadLimits extends NamedLimits implements WorkerLimits {
  readonly workers: number
  readonly #waker: ThreadWaker

  constructor({ shapes, places, place, memory, workers }: SharedHandle) {
    super()
    this.workers = workers
    const map = mapCells(shapes, places, memory)
    this.#waker = new ThreadWaker(map.wakeCounters, place)
    const wakeLenders = (): void => {
      for (const [index, isLender] of map.lenders.entries()) if (isLender) ThreadWaker.wake(map.wakeCounters, index)
    }
    for (const [index, shape] of shapes.entries()) {
      const cells = map.limits[index]
      if (!cells) continue
      const permits = new Semaphore({
        cells: cells.permits,
        place,
        wake: (other) => ThreadWaker.wake(map.wakeCounters, other),
        onWait: wakeLenders,
      })
      this.#waker.onWake(() => permits.collect())
      this.add(shape, {
        cells,
        parties: map.parties,
        place,
        permits,
        announce: () => ThreadWaker.wakeAll(map.wakeCounters),
        onAnnounced: (listener) => this.#waker.onWake(listener),
      })
    }
  }

  receive(): void {
    throw new MillraceError('internal', 'a thread shares its limits through memory and is sent none')
  }

  protected onClose(): Promise<void> {
    return this.#waker.close()
  }
}
