import { MillraceError } from '../errors/index.ts'
import { unknownField } from '../kit/index.ts'
import type { WorkerHeap } from './worker-channel.ts'

/** The rules by which workers are kept. */
export interface Supervision {
  /** A worker that is silent for this long gets no new work. */
  readonly silentAfterMs: number
  /** A worker that is silent for this long is ended and replaced. */
  readonly replaceAfterMs: number
  /** How long loading the environment may take. */
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

/** Checks the rules, and fills in the defaults. */
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
    `a worker that has not been heard of is replaced after ${silentAfterMs} ms at the earliest, not after ${replaceAfterMs}: busy ones are late now and then`,
  )
}
