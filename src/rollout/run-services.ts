import type { Agent, Environment } from '../env/index.ts'
import type { ModelClient } from '../inference/index.ts'
import type { Semaphore } from '../kit/index.ts'
import type { Journal } from '../store/index.ts'
import type { BlockedRewards } from './blocked-rewards.ts'
import type { CallStyle } from './call-style.ts'
import type { RunSettings } from './job.ts'
import type { RewardPool } from './reward-pool.ts'
import type { Toolkit } from './toolkit.ts'

/** What a run has open on one thread for all its rollouts there. */
export interface RunServices {
  readonly environment: Environment
  readonly options: unknown
  /** The agent of the rollouts: the environment's own, or the tool loop. A child has the tool loop unless it names another. */
  readonly agent: Agent
  readonly toolkit: Toolkit
  readonly callStyle: CallStyle
  readonly settings: RunSettings
  readonly journal: Journal
  readonly judgePermits: Semaphore
  /** Present if the environment has a heavy reward. */
  readonly rewardPool: RewardPool | undefined
  readonly blockedRewards: BlockedRewards
  model(name: string): ModelClient
}
