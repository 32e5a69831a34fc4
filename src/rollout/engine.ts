import type { Agent, Environment } from '../env/index.ts'
import type { ModelClient } from '../inference/index.ts'
import type { Semaphore } from '../kit/index.ts'
import type { Journal } from '../store/index.ts'
import type { ToolBox } from '../tools/index.ts'
import type { RolloutContext } from '../env/index.ts'
import type { BlockedRewards } from './blocked-rewards.ts'
import type { RunSettings } from './job.ts'
import type { RewardPool } from './reward-pool.ts'

/** What all rollouts on one thread share. */
export interface Engine {
  readonly environment: Environment
  readonly options: unknown
  /** The environment's own, or the tool loop. */
  readonly agent: Agent
  readonly tools: ToolBox<RolloutContext<unknown, unknown, unknown>>
  readonly settings: RunSettings
  readonly journal: Journal
  readonly judgePermits: Semaphore
  /** If a reward is heavy. */
  readonly rewardPool: RewardPool | undefined
  readonly blockedRewards: BlockedRewards
  model(name: string): ModelClient
}
