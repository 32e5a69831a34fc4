import type { PoolWorker } from './pool-worker.ts'

/** A worker that is ready. Tries until there is one; rejects if the pool ends first. */
export type StartWorker = (id: number, restarts: number) => Promise<PoolWorker>

/** A place in the pool: it has a worker, or is getting one, until it is given up. */
export class Seat {
  readonly id: number
  readonly #start: StartWorker
  #worker: PoolWorker | undefined
  #filling: Promise<void> | undefined
  #starts = 0
  #state: 'kept' | 'given-up' = 'kept'

  constructor(id: number, start: StartWorker) {
    this.id = id
    this.#start = start
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

  /** A fresh worker first; then the old one finishes what it runs. */
  async renew(): Promise<void> {
    const old = this.#worker
    await this.fill()
    await old?.retire()
  }

  /** The worker finishes what it runs, and nobody follows. */
  async giveUp(): Promise<void> {
    this.#state = 'given-up'
    const worker = this.#worker
    this.#worker = undefined
    // One that is just starting finds the seat given up, and retires.
    await Promise.all([worker?.retire(), this.#filling])
  }

  async #fill(): Promise<void> {
    while (this.#state === 'kept') {
      const worker = await this.#start(this.id, this.#starts)
      this.#starts += 1
      // Since it was ready it may have died, or the seat may have been given up.
      if (this.#state === 'kept' && !worker.isGone) {
        this.#worker = worker
        return
      }
      await worker.retire()
    }
  }
}
