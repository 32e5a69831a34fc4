/** What is left of a rollout's budget, as an agent or a tool may read it. Infinity where nothing was limited. */
export interface Budget {
  readonly turnsLeft: number
  readonly tokensLeft: number
  readonly costLeftUsd: number
  readonly workingMsLeft: number
  readonly wallMsLeft: number
}
