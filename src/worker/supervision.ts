import { MillraceError } from '../errors/index.ts'
import { unknownField } from '../kit/index.ts'
import type { WorkerHeap } from './channel/channel.ts'

export interface Supervision {
  /** A worker that is silent for this long gets no new work. */
  readonly silentAfterMs: number
  /** A worker that is silent for this long is ended and replaced. */
  readonly replaceAfterMs: number
  readonly startTimeoutMs: number
  /** How long a worker that is to be replaced may finish what it runs. Calls that still run then start over elsewhere. */
  readonly retireTimeoutMs: number
  /** A worker that uses more, or is older, is replaced by a fresh one, as by `restart`. */
  readonly maxMemoryBytes: number
  readonly maxAgeMs: number
  readonly heap: WorkerHeap
}

const defaultSupervision: Supervision = {
  silentAfterMs: 2_000,
  replaceAfterMs: 30_000,
  startTimeoutMs: 60_000,
  retireTimeoutMs: 600_000,
  maxMemoryBytes: Number.POSITIVE_INFINITY,
  maxAgeMs: Number.POSITIVE_INFINITY,
  heap: {},
}

export function resolveSupervision(given: Partial<Supervision> = {}): Supervision {
  const unknown = unknownField(given, Object.keys(defaultSupervision), 'supervision.')
  if (unknown !== undefined) throw new MillraceError('config_invalid', unknown)
  const supervision = { ...defaultSupervision, ...given }
  const { heap, ...numbers } = supervision
  for (const [name, value] of Object.entries({ ...numbers, ...heap })) {
    if (value > 0) continue
    throw new MillraceError('config_invalid', `supervision.${name} must be a number above 0, not ${value}`)
  }
  const { silentAfterMs, replaceAfterMs } = supervision
  if (replaceAfterMs >= silentAfterMs) return supervision
  throw new MillraceError(
    'config_invalid',
    `a worker without a heartbeat can be replaced after ${silentAfterMs} ms at the earliest, not after ${replaceAfterMs}: the heartbeats of busy workers can be late`,
  )
}

const maxFailedStarts = 5
/** Several times as many deaths as quarantine needs to find a culprit. Rollouts that end in between reset the count. */
const maxDeaths = 20

/** Counts failures without a success in between, and says when going on would go on for ever. */
export class ConsecutiveFailures {
  #failedStarts = 0
  #deaths = 0

  get failedStarts(): number {
    return this.#failedStarts
  }

  noteStart(): void {
    this.#failedStarts = 0
  }

  noteEnd(): void {
    this.#deaths = 0
  }

  noteFailedStart(cause: MillraceError): MillraceError | undefined {
    this.#failedStarts += 1
    if (this.#failedStarts < maxFailedStarts) return undefined
    return givingUp(`no worker can be started: ${this.#failedStarts} tries failed, the last one with`, cause)
  }

  noteDeath(cause: MillraceError): MillraceError | undefined {
    this.#deaths += 1
    if (this.#deaths < maxDeaths) return undefined
    return givingUp(`${this.#deaths} workers died and no rollout ended in between; the last one died with`, cause)
  }
}

function givingUp(why: string, cause: MillraceError): MillraceError {
  const advice = 'Ended rollouts are kept: correct the cause, then run the same command again.'
  return new MillraceError('worker_lost', `${why}: ${cause.rawMessage}. ${advice}`, { cause })
}
