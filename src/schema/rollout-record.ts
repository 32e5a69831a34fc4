import type { WireError } from '../errors/index.ts'
import type { Json } from '../kit/index.ts'
import type { Message } from './message.ts'
import type { ToolThrow, Usage } from './node.ts'

/** The result of one rollout. A plain cloneable value: a line of `rollouts.jsonl`, an item of `evaluate()`. */
export interface RolloutRecord {
  /** `<task index>-<sample>`; a child's id adds its place in the parent and a digest of its prompt, as `.t2c0-k3x9`. */
  id: string
  environment: string
  model: string
  task: { index: number; id: string }
  sample: number
  attempt: number
  outcome: Outcome
  truncated: boolean
  /**
   * How the agent had ended, if the reward failed (`reward_error`); left out if the agent had ended by itself. `reward_error` if
   * it was stopped in the middle, because it had its answer verified and that failed.
   */
  agentOutcome?: Outcome
  error?: WireError
  /** What was at work when the working time ran out, as `tool search`; left out if that was the agent's own code. */
  cutOffIn?: string
  /** null unless the outcome is scored, and null in a voided group. */
  reward: number | null
  rewards: Record<string, RewardComponent>
  metrics: Record<string, number>
  /** A group policy took the reward away because a sibling failed. */
  voided?: true
  /** Whoever asked for it wanted no reward. */
  unscored?: true
  answer: string | null
  messages: readonly Message[]
  /** How many of the messages are the prompt; left out if the first reply in them comes right after it. */
  promptLength?: number
  turns: number
  toolCalls: number
  toolErrors: number
  /** What the tools threw, by tool and kind; left out if they threw nothing. */
  toolFaults?: readonly ToolFault[]
  /** Repairs that tool calls needed, made or only noted; left out if there were none. */
  toolRepairs?: number
  /** Tool servers that the rollout had to do without, and why; left out if all were there. */
  missingServers?: readonly MissingServer[]
  children: number
  usage: Usage
  judgeUsage: Usage
  /** The models that judges asked, of children too; left out if none was asked. */
  judgeModels?: readonly string[]
  /** US dollars, judges and children included; null where a price is unknown. */
  cost: number | null
  timing: RolloutTiming
  info?: Record<string, Json>
}

export interface ToolFault extends ToolThrow {
  readonly tool: string
  readonly calls: number
}

export interface MissingServer {
  readonly server: string
  readonly cause: string
}

export interface RewardComponent {
  score: number
  weight: number
}

/**
 * Milliseconds, except `startedAt` (epoch), in the launch that the rollout ended in; `workingMs` includes earlier launches.
 * Model, tools and reward overlap where calls ran in parallel.
 */
export interface RolloutTiming {
  startedAt: number
  wallMs: number
  workingMs: number
  waitMs: number
  modelMs: number
  toolMs: number
  rewardMs: number
}

/** A closed set. An outcome that infrastructure caused never carries a reward: a broken server must not teach a model. */
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

export function rolloutId(task: number, sample: number): string {
  return `${task}-${sample}`
}

/** The index of the task that a rollout or its child is an attempt at. */
export function taskOf(rollout: string): number {
  return Number.parseInt(rollout, 10)
}
