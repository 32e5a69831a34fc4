import type { ModelStatus } from '../inference/index.ts'

interface StrandedWatchOptions {
  /** Rollouts that run. */
  readonly active: () => number
  readonly models: () => readonly ModelStatus[]
  readonly onStranded: () => void
  readonly tickMs?: number
}

/** With a second each, longer than the longest pause between two probes of a backend: one of them was in vain meanwhile. */
const patienceTicks = 15

/**
 * Tells, once, when all that runs has waited for backends that are overloaded or gone, and nothing else, for a while. Counted in
 * ticks, so that a process that was itself held up does not take that for their silence.
 */
export class StrandedWatch implements Disposable {
  readonly #options: StrandedWatchOptions
  readonly #timer: NodeJS.Timeout
  #ticks = 0

  constructor(options: StrandedWatchOptions) {
    this.#options = options
    this.#timer = setInterval(() => this.#look(), options.tickMs ?? 1000)
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer)
  }

  #look(): void {
    const { active, models, onStranded } = this.#options
    this.#ticks = areStranded(active(), models()) ? this.#ticks + 1 : 0
    if (this.#ticks < patienceTicks) return
    this[Symbol.dispose]()
    onStranded()
  }
}

/** A model that anybody is parked for has no backend that answers; one call of it at a time may be on its way, as a probe. */
function areStranded(active: number, models: readonly ModelStatus[]): boolean {
  const parked = models.filter((model) => model.parked > 0)
  const held = parked.reduce((sum, model) => sum + model.parked + model.inFlight, 0)
  const isIdle = models.every((model) => model.inFlight <= (model.parked > 0 ? 1 : 0) && model.waiting === 0)
  return parked.length > 0 && isIdle && held >= active
}
