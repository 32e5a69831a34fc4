import { z } from 'zod'

const count = z.number()

/** The stored form of `Usage`. */
export const usageSchema = z.object({
  calls: count,
  input: count,
  cachedInput: count,
  output: count,
  reasoning: count,
  estimated: count.exactOptional(),
  captured: count.exactOptional(),
})

/**
 * Tokens of one or more answered model calls; a call that failed or hung has none. `input` includes `cachedInput`; `output`
 * includes `reasoning`.
 */
export interface Usage {
  calls: number
  input: number
  cachedInput: number
  output: number
  reasoning: number
  /** How many of the calls have estimated tokens, as their server did not report usage. Left out if none. */
  estimated?: number
  /** How many of the calls returned the ids and log-probabilities of all their tokens. Left out if none was asked to. */
  captured?: number
}

export function emptyUsage(): Usage {
  return { calls: 0, input: 0, cachedInput: 0, output: 0, reasoning: 0 }
}

export function addUsage(total: Usage, more: Readonly<Usage>): void {
  total.calls += more.calls
  total.input += more.input
  total.cachedInput += more.cachedInput
  total.output += more.output
  total.reasoning += more.reasoning
  if (more.estimated !== undefined) total.estimated = (total.estimated ?? 0) + more.estimated
  if (more.captured !== undefined) total.captured = (total.captured ?? 0) + more.captured
}
