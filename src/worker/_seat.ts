import type { PoolWorker } from './pool-worker.ts'

/** A worker that is ready. Tries until there is one; rejects if the pool ends first. */
export type StartWorker = (id: number, restarts: number) => Promise<PoolWorker>

/** A place in the pool: it has a worker, or is getting one, until it is given up. */
export class Seat {
  readonly id: number
  readonly #start: StartWorker
  readonly #onFilled: () => void
  #worker: PoolWorker | undefined
  #filling: Promise<void> | undefined
  #starts = 0
  #state: 'kept' | 'given-up' = 'kept'

  /** `onFilled`: there is a worker here now. Not before: whoever was told earlier would find nobody and wait on. */
  constructor(id: number, start: StartWorker, onFilled: () => void) {
    this.id = id
    this.#start = start
    this.#onFilled = onFilled
  }

  get worker(): PoolWorker | undefined {
    return this.#worker
  }

  /** Replaces whoever sits here by a fresh worker, as soon as that one is ready. Callers share one start. */
  fill(): Promise<void> {
    this.#filling ??= this.#fill().finally(() => (this.#filling = undefined))
    return this.#filling
  }

  /** The seat is empty from now on; false if it is not this worker's. */
  clear(worker: PoolWorker): boolean {
    if (this.#worker !== worker) return false
    this.#worker = undefined
    return true
  }

  /** Puts a fresh worker here. The one that it follows takes no more work, and is for the caller to retire. */
  async renew(): Promise<PoolWorker | undefined> {
    const old = this.#worker
    await this.fill()
    return old
  }

  /** Nobody follows the worker that sits here, who is for the caller to retire. */
  giveUp(): PoolWorker | undefined {
    this.#state = 'given-up'
    const worker = this.#worker
    this.#worker = undefined
    // One that is just starting finds the seat given up, and retires.
    return worker
  }

  async #fill(): Promise<void> {
    while (this.#state === 'kept') {
      const worker = await this.#start(this.id, this.#starts)
      this.#starts += 1
      // Since it was ready it may have died, or the seat may have been given up.
      if (this.#state === 'kept' && !worker.isGone) {
        this.#worker = worker
        this.#onFilled()
        return
      }
      await worker.retire()
    }
  }
}
