import type { StartWorker } from './_worker-slot.ts'
import type { PoolWorker } from './pool-worker.ts'

/** How many cohorts run at once; the others wait. More would be done sooner and take more of the machine. */
export const maxIsolated = 4

/** A worker that one cohort has to itself, from the arrival of its first member until none is left. */
export interface IsolatedWorker {
  readonly worker: Promise<PoolWorker>
}

interface TakenWorker extends IsolatedWorker {
  readonly cohort: number
  readonly id: number
  current: PoolWorker | undefined
  /** How many calls of the cohort have taken it and not given it back. */
  users: number
}

/** The workers on which suspects run. Each is fresh, so that nothing but its own cohort can be blamed for its death. */
export class IsolatedWorkers {
  readonly #start: StartWorker
  readonly #onRoom: () => void
  /** By cohort, those that further members may take. */
  readonly #open = new Map<number, TakenWorker>()
  /** Those that are not gone, the open ones among them. */
  readonly #present = new Set<TakenWorker>()

  constructor(start: StartWorker, onRoom: () => void) {
    this.#start = start
    this.#onRoom = onRoom
  }

  /** The worker of a cohort; undefined if there are as many as may be: try again when there is room. The caller then owes a `giveBack`. */
  take(cohort: number): IsolatedWorker | undefined {
    const taken = this.#open.get(cohort) ?? (this.#present.size < maxIsolated ? this.#add(cohort) : undefined)
    if (taken) taken.users += 1
    return taken
  }

  /** The last user to give a worker back ends it, even one that is still starting. Resolves when the worker is gone. */
  async giveBack(isolated: IsolatedWorker): Promise<void> {
    const taken = isolated as TakenWorker
    taken.users -= 1
    if (taken.users > 0) return
    this.#shut(taken)
    const worker = await taken.worker.catch(() => undefined)
    await worker?.close()
    this.#present.delete(taken)
    this.#onRoom()
  }

  /** Called when this worker is gone: members of its cohort that come now get a new one. */
  clear(worker: PoolWorker): void {
    for (const taken of this.#open.values()) if (taken.current === worker) this.#shut(taken)
  }

  #add(cohort: number): TakenWorker {
    const ids = new Set(Array.from(this.#present, (each) => each.id))
    let id = -1
    while (ids.has(id)) id -= 1
    const starting = this.#start(id, 0)
    const taken: TakenWorker = {
      cohort,
      id,
      current: undefined,
      users: 0,
      worker: starting.then((worker) => (taken.current = worker)),
    }
    // Users await `worker` and see its failure; if all have given it back, the rejection must not count as unhandled.
    taken.worker.catch(() => {})
    this.#open.set(cohort, taken)
    this.#present.add(taken)
    return taken
  }

  /** Gives the worker to no further calls. */
  #shut(taken: TakenWorker): void {
    if (this.#open.get(taken.cohort) === taken) this.#open.delete(taken.cohort)
  }
}
