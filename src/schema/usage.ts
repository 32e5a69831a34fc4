/** Tokens of one or more model calls that were answered; one that failed or hung has none. `input` includes `cachedInput`; `output` includes `reasoning`. */
export interface Usage {
  calls: number
  input: number
  cachedInput: number
  output: number
  reasoning: number
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
}
