/** A reply in the making, as the engine sees it. */
export interface EngineJob {
  /** Its own name, and that of its request. */
  readonly names: readonly string[]
  readonly isFrozen: boolean
  readonly promptTokens: number
  thaw(): void
  freeze(): void
  abort(): void
}

/** A pause ends replies in the making (`abort`), freezes them (`keep`) or lets them end (`wait`); later ones are held. */
export const pauseModes = ['abort', 'keep', 'wait'] as const

export type PauseMode = (typeof pauseModes)[number]

interface Drain {
  readonly left: Set<EngineJob>
  readonly resolve: () => void
}

/**
 * The replies in the making, those that wait for a place among them, and the switch with which weight updates pause them. One job
 * per request in flight.
 */
export class SimulatedEngine {
  readonly #jobs = new Set<EngineJob>()
  readonly #queue = new Set<EngineJob>()
  readonly #running = new Set<EngineJob>()
  readonly #drains = new Set<Drain>()
  readonly #maxRunning: () => number
  #isPaused = false
  #isAsleep = false

  /** `maxRunning`: how many jobs may run at once now; 0 is no limit. */
  constructor(maxRunning: () => number) {
    this.#maxRunning = maxRunning
  }

  get isPaused(): boolean {
    return this.#isPaused
  }

  get isAsleep(): boolean {
    return this.#isAsleep
  }

  /** Whether new replies have to wait. */
  get isHolding(): boolean {
    return this.#isPaused || this.#isAsleep
  }

  get queued(): number {
    return this.#queue.size
  }

  get running(): number {
    return this.#running.size
  }

  /** The tokens of the prompts of the jobs that run. */
  get contextTokens(): number {
    let tokens = 0
    for (const job of this.#running) tokens += job.promptTokens
    return tokens
  }

  add(job: EngineJob): void {
    this.#jobs.add(job)
    this.#queue.add(job)
    this.#admit()
  }

  remove(job: EngineJob): void {
    this.#jobs.delete(job)
    this.#queue.delete(job)
    this.#running.delete(job)
    for (const drain of this.#drains) {
      drain.left.delete(job)
      if (drain.left.size === 0) this.#end(drain)
    }
    this.#admit()
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
    this.#thawAll()
  }

  /** Its memory is given back, and with it every reply in the making. */
  sleep(): void {
    this.#isAsleep = true
    this.abort()
  }

  wakeUp(): void {
    this.#isAsleep = false
    this.#thawAll()
  }

  abort(names?: readonly string[]): number {
    const jobs = [...this.#jobs].filter((job) => !names || job.names.some((name) => names.includes(name)))
    for (const job of jobs) job.abort()
    return jobs.length
  }

  #thawAll(): void {
    if (this.isHolding) return
    for (const job of this.#running) job.thaw()
    this.#admit()
  }

  #admit(): void {
    const limit = this.#maxRunning() || Number.POSITIVE_INFINITY
    while (!this.isHolding && this.#running.size < limit) {
      const [next] = this.#queue
      if (!next) return
      this.#queue.delete(next)
      this.#running.add(next)
      next.thaw()
    }
  }

  #end(drain: Drain): void {
    this.#drains.delete(drain)
    drain.resolve()
  }
}
