import type { ModelStatus } from '../inference/index.ts'

interface StrandedWatchOptions {
  /** How much has not ended: rollouts that run, groups that are scored. */
  readonly work: () => number
  readonly models: () => readonly ModelStatus[]
  readonly onStranded: () => void
  readonly tickMs?: number
}

/** With a second each, longer than any pause between two probes of a backend that has not asked for more: one was in vain meanwhile. */
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
    const { work, models, onStranded } = this.#options
    this.#ticks = areStranded(work(), models()) ? this.#ticks + 1 : 0
    if (this.#ticks < patienceTicks) return
    this[Symbol.dispose]()
    onStranded()
  }
}

/** Whoever is parked waits for a backend, and so does whoever goes as a probe of one that lets nobody else in. */
function areStranded(work: number, models: readonly ModelStatus[]): boolean {
  const waitingForBackends = models.reduce((sum, { parked, probing = 0 }) => sum + parked + probing, 0)
  return waitingForBackends > 0 && waitingForBackends >= work && models.every(isSilent)
}

/** Whether it answers nobody, and nobody is about to ask it. */
function isSilent({ inFlight, waiting, probing = 0 }: ModelStatus): boolean {
  return waiting === 0 && inFlight <= probing
}
