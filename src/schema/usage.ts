import { z } from 'zod'

const count = z.number()

/** As it is kept; see `Usage`. */
export const usageSchema = z.object({
  calls: count,
  input: count,
  cachedInput: count,
  output: count,
  reasoning: count,
  estimated: count.exactOptional(),
})

/** Tokens of one or more model calls that were answered; one that failed or hung has none. `input` includes `cachedInput`; `output` includes `reasoning`. */
export interface Usage {
  calls: number
  input: number
  cachedInput: number
  output: number
  reasoning: number
  /** Calls among these whose server did not say what they used: their tokens are an estimate. Not there if there were none. */
  estimated?: number
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
}
