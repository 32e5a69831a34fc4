import type { PoolWorker } from './pool-worker.ts'

/** Starts a worker until one is ready; rejects if the pool ends first. */
export type StartWorker = (id: number, restarts: number) => Promise<PoolWorker>

/** A place in the pool, which has a worker, or is getting one, until it is given up. */
export class WorkerSlot {
  readonly id: number
  readonly #start: StartWorker
  readonly #onFilled: () => void
  #worker: PoolWorker | undefined
  #filling: Promise<void> | undefined
  #starts = 0
  #state: 'kept' | 'given-up' = 'kept'

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

  /** Empties the slot; false if it is not this worker's. */
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

  /** Gives up the slot: its worker is not replaced. Returns that worker, which is for the caller to retire. */
  giveUp(): PoolWorker | undefined {
    this.#state = 'given-up'
    const worker = this.#worker
    this.#worker = undefined
    // A worker that is just starting finds the slot given up, and retires.
    return worker
  }

  async #fill(): Promise<void> {
    while (this.#state === 'kept') {
      const worker = await this.#start(this.id, this.#starts)
      this.#starts += 1
      // Since the worker was ready it may have died, or the slot may have been given up.
      if (this.#state === 'kept' && !worker.isGone) {
        this.#worker = worker
        this.#onFilled()
        return
      }
      await worker.retire()
    }
  }
}
