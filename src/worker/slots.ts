import type { PoolWorker } from './worker.ts'

/** Starts a worker until one is ready; rejects if the pool ends first. */
type StartWorker = (id: number, restarts: number) => Promise<PoolWorker>

/** A slot of the pool, which has a worker, or is getting one, until it is released. */
export class WorkerSlot {
  readonly id: number
  readonly #start: StartWorker
  readonly #onFilled: () => void
  #worker: PoolWorker | undefined
  #filling: Promise<void> | undefined
  #starts = 0
  #state: 'kept' | 'released' = 'kept'

  /** `onFilled` is called once the worker is here. A caller told earlier would find no worker and wait on. */
  constructor(id: number, start: StartWorker, onFilled: () => void) {
    this.id = id
    this.#start = start
    this.#onFilled = onFilled
  }

  get worker(): PoolWorker | undefined {
    return this.#worker
  }

  /** Replaces the worker by a fresh one, as soon as that one is ready. Callers share one start. */
  fill(): Promise<void> {
    this.#filling ??= this.#fill().finally(() => (this.#filling = undefined))
    return this.#filling
  }

  clear(worker: PoolWorker): boolean {
    if (this.#worker !== worker) return false
    this.#worker = undefined
    return true
  }

  /** Puts a fresh worker here. Returns the old one, which takes no more work and is for the caller to retire. */
  async renew(): Promise<PoolWorker | undefined> {
    const old = this.#worker
    await this.fill()
    return old
  }

  /** Releases the slot: its worker is not replaced. Returns that worker, which is for the caller to retire. */
  release(): PoolWorker | undefined {
    this.#state = 'released'
    const worker = this.#worker
    this.#worker = undefined
    // A worker that is just starting finds the slot released, and retires.
    return worker
  }

  async #fill(): Promise<void> {
    while (this.#state === 'kept') {
      const worker = await this.#start(this.id, this.#starts)
      this.#starts += 1
      // Since the worker was ready it may have died, or the slot may have been released.
      if (this.#state === 'kept' && !worker.isGone) {
        this.#worker = worker
        this.#onFilled()
        return
      }
      await worker.retire()
    }
  }
}

/** How many cohorts run at once; the others wait. More would be done sooner and take more of the machine. */
export const maxIsolated = 4

/** A worker that one cohort has to itself, from the arrival of its first member until none is left. */
export interface IsolatedWorker {
  readonly worker: Promise<PoolWorker>
  readonly cohort: number
  readonly id: number
  current: PoolWorker | undefined
  isOpen: boolean
  users: number
}

/** The workers on which suspects run. Each is fresh, so that nothing but its own cohort can be blamed for its death. */
export class IsolatedWorkers {
  readonly #start: StartWorker
  readonly #onRoom: () => void
  readonly #present = new Set<IsolatedWorker>()

  constructor(start: StartWorker, onRoom: () => void) {
    this.#start = start
    this.#onRoom = onRoom
  }

  /** The worker of a cohort; undefined if there are as many as may be: try again when there is room. The caller then owes a `giveBack`. */
  take(cohort: number): IsolatedWorker | undefined {
    const open = this.#present.values().find((each) => each.isOpen && each.cohort === cohort)
    const taken = open ?? (this.#present.size < maxIsolated ? this.#add(cohort) : undefined)
    if (taken) taken.users += 1
    return taken
  }

  /** The last user to give a worker back ends it, even one that is still starting. Resolves when the worker is gone. */
  async giveBack(taken: IsolatedWorker): Promise<void> {
    taken.users -= 1
    if (taken.users > 0) return
    taken.isOpen = false
    const worker = await taken.worker.catch(() => undefined)
    await worker?.close()
    this.#present.delete(taken)
    this.#onRoom()
  }

  /** Called when this worker is gone: members of its cohort that come now get a new one. */
  clear(worker: PoolWorker): void {
    for (const taken of this.#present) if (taken.current === worker) taken.isOpen = false
  }

  #add(cohort: number): IsolatedWorker {
    const ids = new Set(Array.from(this.#present, (each) => each.id))
    let id = -1
    while (ids.has(id)) id -= 1
    const starting = this.#start(id, 0)
    const taken: IsolatedWorker = {
      cohort,
      id,
      current: undefined,
      isOpen: true,
      users: 0,
      worker: starting.then((worker) => (taken.current = worker)),
    }
    // Users await `worker` and see its failure; if all have given it back, the rejection must not count as unhandled.
    taken.worker.catch(() => {})
    this.#present.add(taken)
    return taken
  }
}

interface Candidate {
  readonly takesWork: boolean
  readonly load: number
  readonly lagMs: number
  worksOn(task: number): boolean
}

/** A worker whose loop is this late gets no new rollouts while another can take them: its own would only wait longer. */
const maxLagMs = 200

/** How much busier than the least busy worker one may be and still get the next rollout of its task. */
const affinitySlack = { calls: 4, share: 0.25 } as const

/** The least busy worker that keeps up; one at the same task comes first, unless it is clearly busier. */
export function chooseWorker<Worker extends Candidate>(
  workers: Iterable<Worker>,
  task: number | undefined,
): Worker | undefined {
  const takers = [...workers].filter(({ takesWork }) => takesWork)
  const prompt = takers.filter(({ lagMs }) => lagMs <= maxLagMs)
  const candidates = prompt.length > 0 ? prompt : takers
  const least = leastBusy(candidates)
  if (!least || task === undefined) return least
  const familiar = leastBusy(candidates.filter((worker) => worker.worksOn(task)))
  const slack = Math.max(affinitySlack.calls, least.load * affinitySlack.share)
  return familiar && familiar.load <= least.load + slack ? familiar : least
}

function leastBusy<Worker extends Candidate>(workers: readonly Worker[]): Worker | undefined {
  let least = workers[0]
  for (const worker of workers) if (least && worker.load < least.load) least = worker
  return least
}
