/**
 * How a rollout can end: a closed set. An outcome that infrastructure caused never carries a reward, so that a broken
 * server can never teach a model anything.
 */
export const outcomes = {
  completed: { scored: true, truncated: false, rule: 'none' },
  max_turns: { scored: true, truncated: true, rule: 'none' },
  max_tokens: { scored: true, truncated: true, rule: 'none' },
  context_length: { scored: true, truncated: true, rule: 'none' },
  agent_timeout: { scored: true, truncated: true, rule: 'none' },
  max_cost: { scored: true, truncated: true, rule: 'none' },
  agent_error: { scored: false, truncated: false, rule: 'none' },
  model_error: { scored: false, truncated: false, rule: 'retry' },
  tool_infra_error: { scored: false, truncated: false, rule: 'retry' },
  sandbox_lost: { scored: false, truncated: false, rule: 'retry' },
  env_error: { scored: false, truncated: false, rule: 'none' },
  reward_error: { scored: false, truncated: false, rule: 'rescore' },
  infra_timeout: { scored: false, truncated: false, rule: 'retry' },
  worker_lost: { scored: false, truncated: false, rule: 'retry' },
  poisoned: { scored: false, truncated: false, rule: 'none' },
  cancelled: { scored: false, truncated: false, rule: 'none' },
  stale: { scored: false, truncated: false, rule: 'none' },
} as const satisfies Record<string, { scored: boolean; truncated: boolean; rule: 'none' | 'retry' | 'rescore' }>

export type Outcome = keyof typeof outcomes

export const outcomeNames = Object.keys(outcomes) as readonly Outcome[]
