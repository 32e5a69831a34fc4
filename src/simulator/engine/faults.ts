import { MillraceError } from '../../errors/index.ts'
import { draw } from './draw.ts'

/** Draws a fault anew for each try; `base` must depend on the number of the try. */
export function drawFault(faults: Readonly<Record<ExclusiveFault, number>>, base: number): ExclusiveFault | undefined {
  let below = 0
  let luck: number | undefined
  for (const fault of exclusiveFaults) {
    if (faults[fault] === 0) continue
    below += faults[fault]
    luck ??= draw(base, 'fault')
    if (luck < below) return fault
  }
  return undefined
}

export function rateLimited(message: string, retryAfterMs: number): MillraceError {
  const data = retryAfterMs > 0 ? { status: 429, retryAfterMs } : { status: 429 }
  return new MillraceError('model_rate_limited', message, { data })
}

export function overloadedError(): MillraceError {
  return new MillraceError(
    'model_overloaded',
    'the simulator is overloaded for a while, as its options ask; try later',
    {
      data: { status: 503 },
    },
  )
}

const cutMessage = 'the reply ended in the middle, as the faults of the simulator ask; try again'

const errors = {
  serverError: ['model_server_error', 500, 'the simulator failed, as faults.serverError asks; try again'],
  midstreamError: ['model_server_error', 500, 'the simulator failed in the middle, as faults.midstreamError asks'],
  cut: ['model_truncated', 200, cutMessage],
  kill: ['model_truncated', 200, cutMessage],
  quietEnd: ['model_truncated', 200, cutMessage],
  malformed: ['model_malformed', 200, 'the reply is not JSON, as faults.malformed asks; try again'],
} as const

export function faultError(fault: keyof typeof errors): MillraceError {
  const [code, status, message] = errors[fault]
  return new MillraceError(code, message, { data: { status } })
}

/** The error that a client reports for a reply that the engine ended (`finish_reason: abort`). */
export function abortedError(): MillraceError {
  return new MillraceError(
    'model_truncated',
    'the engine aborted the reply, because it was paused or received an abort; try again',
    {
      data: { status: 200 },
    },
  )
}

/** The faults that exclude each other: a new one goes to the end, so that a seed keeps the faults it had. */
export const exclusiveFaults = [
  'rateLimit',
  'serverError',
  'cut',
  'malformed',
  'hang',
  'kill',
  'quietEnd',
  'stall',
  'midstreamError',
] as const

type ExclusiveFault = (typeof exclusiveFaults)[number]

export type ReplyFault = Exclude<ExclusiveFault, 'rateLimit' | 'serverError'>

const forcedFaults = [...exclusiveFaults, 'slow', 'trickle', 'overload'] as const

export type ForcedFault = (typeof forcedFaults)[number]

export const forcedFaultList = forcedFaults.join(', ')

export function forcedFault(name: string): ForcedFault | undefined {
  const written = name.replaceAll(/-([a-z])/g, (_, letter: string) => letter.toUpperCase())
  return forcedFaults.find((fault) => fault === written)
}
