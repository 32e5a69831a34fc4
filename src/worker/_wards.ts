import type { StartWorker } from './_seat.ts'
import type { PoolWorker } from './pool-worker.ts'

/** How many cohorts run at once; the others wait. More would be done sooner and take more of the machine. */
export const maxWards = 4

/** A worker that one cohort has to itself, from the arrival of its first member until none is left. */
export interface Ward {
  readonly worker: Promise<PoolWorker>
}

interface OpenWard extends Ward {
  readonly cohort: number
  readonly id: number
  current: PoolWorker | undefined
  visitors: number
}

/** The workers on which suspects run. Each is fresh, so that nothing but its own cohort can be blamed for its death. */
export class Wards {
  readonly #start: StartWorker
  readonly #onRoom: () => void
  readonly #open = new Map<number, OpenWard>()
  /** Wards whose worker is not gone, the open ones among them. */
  readonly #occupied = new Set<OpenWard>()

  constructor(start: StartWorker, onRoom: () => void) {
    this.#start = start
    this.#onRoom = onRoom
  }

  /** The ward of a cohort; undefined if all are taken: try again when there is room. The caller then owes a `leave`. */
  enter(cohort: number): Ward | undefined {
    const ward = this.#open.get(cohort) ?? (this.#occupied.size < maxWards ? this.#add(cohort) : undefined)
    if (ward) ward.visitors += 1
    return ward
  }

  /** Leaves a ward. The last visitor ends its worker, even one that is still starting. Resolves when the worker is gone. */
  async leave(entered: Ward): Promise<void> {
    const ward = entered as OpenWard
    ward.visitors -= 1
    if (ward.visitors > 0) return
    this.#shut(ward)
    const worker = await ward.worker.catch(() => undefined)
    await worker?.close()
    this.#occupied.delete(ward)
    this.#onRoom()
  }

  /** Called when this worker is gone: members of its cohort that come now get a new one. */
  clear(worker: PoolWorker): void {
    for (const ward of this.#open.values()) if (ward.current === worker) this.#shut(ward)
  }

  #add(cohort: number): OpenWard {
    const taken = new Set(Array.from(this.#occupied, ({ id }) => id))
    let id = -1
    while (taken.has(id)) id -= 1
    const starting = this.#start(id, 0)
    const ward: OpenWard = {
      cohort,
      id,
      current: undefined,
      visitors: 0,
      worker: starting.then((worker) => (ward.current = worker)),
    }
    // Visitors await `worker` and see its failure; if all have left, the rejection must not count as unhandled.
    ward.worker.catch(() => {})
    this.#open.set(cohort, ward)
    this.#occupied.add(ward)
    return ward
  }

  /** Closes the ward to new visitors. */
  #shut(ward: OpenWard): void {
    if (this.#open.get(ward.cohort) === ward) this.#open.delete(ward.cohort)
  }
}
