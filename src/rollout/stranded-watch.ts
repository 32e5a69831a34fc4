import type { ModelStatus } from '../inference/index.ts'
import { rolloutsWaiting, type ToolServerStatus } from '../tools/index.ts'

interface StrandedWatchOptions {
  /** How many rollouts run and groups are scored. */
  readonly work: () => number
  readonly models: () => readonly ModelStatus[]
  readonly servers: () => readonly Pick<ToolServerStatus, 'waiting'>[]
  readonly onStranded: () => void
  readonly tickMs?: number
}

/**
 * At a second each, longer than the pause between two probes of a backend that asked for no longer one: at least one probe failed
 * meanwhile.
 */
const patienceTicks = 15

/**
 * Calls `onStranded`, once, when all work has waited for a while for nothing but backends that are overloaded or gone, or tool
 * servers that are away. The time is counted in ticks, so that a process that was itself held up does not take that for the
 * backends' silence.
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
    const { work, models, servers, onStranded } = this.#options
    // Too few rather than too many: what still works must not be taken for stranded.
    const awaitingServers = rolloutsWaiting(servers())
    this.#ticks = areStranded(work(), models(), awaitingServers) ? this.#ticks + 1 : 0
    if (this.#ticks < patienceTicks) return
    this[Symbol.dispose]()
    onStranded()
  }
}

/** Parked calls wait for a backend, and so do probes of a backend that admits nothing else. */
function areStranded(work: number, models: readonly ModelStatus[], awaitingServers: number): boolean {
  const waitingForBackends = models.reduce((sum, { parked, probing = 0 }) => sum + parked + probing, 0)
  const waiting = waitingForBackends + awaitingServers
  return waiting > 0 && waiting >= work && models.every(isSilent)
}

/** Whether the model has no calls but probes in flight, and none are about to be sent. */
function isSilent({ inFlight, waiting, probing = 0 }: ModelStatus): boolean {
  return waiting === 0 && inFlight <= probing
}
