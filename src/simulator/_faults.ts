import { MillraceError } from '../errors/index.ts'
import { draw } from './_draw.ts'
import { exclusiveFaults, type ExclusiveFault } from './_fault-names.ts'
import type { SimulatorSettings } from './simulator-options.ts'

/** Draws a fault anew for each try; `base` must depend on the number of the try. */
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

const cutMessage = 'the reply ended in the middle, as the faults of the simulator ask; try again'

/** The error that a client of a real server would report for each fault. */
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
  return new MillraceError('model_truncated', 'the engine aborted the reply: it was paused or told to; ask again', {
    data: { status: 200 },
  })
}
