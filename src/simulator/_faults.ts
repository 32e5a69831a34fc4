import { MillraceError } from '../errors/index.ts'
import { draw } from './_draw.ts'
import type { SimulatorSettings } from './simulator-options.ts'

/** The faults that exclude each other, in the order in which they divide the unit interval. */
const exclusiveFaults = ['rateLimit', 'serverError', 'cut', 'malformed', 'hang'] as const

export type ExclusiveFault = (typeof exclusiveFaults)[number]

/** What a caller may force upon one request, whatever the options say. */
export const forcedFaults = [...exclusiveFaults, 'slow', 'overload'] as const

export type ForcedFault = (typeof forcedFaults)[number]

/** Drawn anew for each try; `base` must contain its number. */
export function drawFault(faults: SimulatorSettings['faults'], base: number): ExclusiveFault | undefined {
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

/** What a client of a real server would make of each fault. */
const errors = {
  serverError: ['model_server_error', 500, 'the simulator failed, as faults.serverError asks; try again'],
  cut: ['model_truncated', 200, 'the reply ended in the middle, as faults.cut asks; try again'],
  malformed: ['model_malformed', 200, 'the reply is not JSON, as faults.malformed asks; try again'],
} as const

export function faultError(fault: keyof typeof errors): MillraceError {
  const [code, status, message] = errors[fault]
  return new MillraceError(code, message, { data: { status } })
}
