/** A reply in the making, as the engine controls it. */
export interface EngineJob {
  /** The names by which a client may ask to abort it. */
  readonly names: readonly string[]
  readonly isFrozen: boolean
  /** Stops its time until it is thawed. */
  freeze(): void
  thaw(): void
  /** Ends the reply with the tokens sampled so far. */
  abort(): void
}

/**
 * What a pause does to replies in the making: `abort` ends them, `keep` freezes them, `wait` lets them end. In every mode later
 * replies are held until the engine goes on.
 */
export const pauseModes = ['abort', 'keep', 'wait'] as const

export type PauseMode = (typeof pauseModes)[number]

/** A pause that waits until certain jobs have gone. */
interface Drain {
  readonly left: Set<EngineJob>
  readonly resolve: () => void
}

/** The replies in the making, and the switch with which weight updates pause them. One job per request in flight. */
export class SimulatedEngine {
  readonly #jobs = new Set<EngineJob>()
  readonly #drains = new Set<Drain>()
  #isPaused = false

  get isPaused(): boolean {
    return this.#isPaused
  }

  /** Takes up a job; it runs now, or when the engine goes on. */
  add(job: EngineJob): void {
    this.#jobs.add(job)
    if (!this.#isPaused) job.thaw()
  }

  remove(job: EngineJob): void {
    this.#jobs.delete(job)
    for (const drain of this.#drains) {
      drain.left.delete(job)
      if (drain.left.size === 0) this.#end(drain)
    }
  }

  /** Resolves when the engine stands still: at once, or in mode `wait` when the running jobs have ended. */
  pause(mode: PauseMode): Promise<void> {
    this.#isPaused = true
    if (mode === 'abort') this.abort()
    if (mode === 'keep') for (const job of this.#jobs) job.freeze()
    const left = new Set([...this.#jobs].filter((job) => !job.isFrozen))
    if (left.size === 0) return Promise.resolve()
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#drains.add({ left, resolve })
    return promise
  }

  resume(): void {
    this.#isPaused = false
    for (const job of this.#jobs) job.thaw()
  }

  /** Ends the jobs of these names, or all; returns how many there were. */
  abort(names?: readonly string[]): number {
    const jobs = [...this.#jobs].filter((job) => !names || job.names.some((name) => names.includes(name)))
    for (const job of jobs) job.abort()
    return jobs.length
  }

  #end(drain: Drain): void {
    this.#drains.delete(drain)
    drain.resolve()
  }
}
