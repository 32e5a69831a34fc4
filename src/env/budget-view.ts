/** The rest of a rollout's budget, for agents and tools to read. Infinity for what is not limited. */
export interface Budget {
  readonly turnsLeft: number
  readonly tokensLeft: number
  readonly costLeftUsd: number
  readonly workingMsLeft: number
  readonly wallMsLeft: number
}
