import type { Agent, Environment, RolloutIdentity } from '../../env/index.ts'
import { type ModelClient, SampledVersions } from '../../inference/index.ts'
import { deepCopy, type Semaphore } from '../../kit/index.ts'
import type { Json } from '../../schema/index.ts'
import type { Journal } from '../../store/index.ts'
import type { ToolOutputs } from '../../tools/index.ts'
import { VerdictReader } from '../recording/recording.ts'
import type { BlockedRewards } from '../reward/blocked-loops.ts'
import type { RewardPool } from '../reward/reward-pool.ts'
import type { RolloutJob, RunSettings } from '../schedule/executor.ts'
import type { RolloutTools, Toolkit } from './toolkit.ts'

/** A rollout while it runs, or is scored again: what its agent, its children and its rewards share. */
export interface LiveRollout {
  readonly job: RolloutJob
  readonly identity: RolloutIdentity
  /** The rollout's own copy, as `options` is: no other rollout sees what this one changes in it. */
  readonly task: unknown
  readonly options: unknown
  readonly tools: RolloutTools
  readonly outputs: ToolOutputs | undefined
  state: unknown
  readonly metrics: Record<string, number>
  readonly notes: Record<string, Json>
  /** How often a child with the same opening was started in a place, so that each gets its own id. Made with the first child. */
  childIds?: Map<string, number>
  /** Recorded children that do not run again, and are counted, by what their ids add to the rollout's. */
  recalledChildren?: Set<string>
  readonly verdicts?: VerdictReader
  /** The weight versions that its tokens, and those of its children, were sampled under. */
  readonly sampled: SampledVersions
}

export function liveRolloutOf(
  job: RolloutJob,
  { tools, outputs, options }: Pick<LiveRollout, 'tools' | 'outputs' | 'options'>,
): LiveRollout {
  const { purpose, reported, verdicts = [], end } = job.recording ?? {}
  return {
    job,
    identity: { id: job.id, attempt: job.attempt, sample: job.sample, seed: job.seed },
    task: deepCopy(job.task.data),
    options: deepCopy(options),
    tools,
    outputs,
    state: undefined,
    metrics: { ...reported?.metrics },
    notes: { ...reported?.notes },
    sampled: new SampledVersions(),
    ...(purpose === 'replay' && { verdicts: new VerdictReader(verdicts, end) }),
  }
}

/** What a run has open on one thread for all its rollouts there. */
export interface RunServices {
  readonly environment: Environment
  readonly options: unknown
  /** The agent of the rollouts: the environment's own, or the tool loop. A child has the tool loop unless it names another. */
  readonly agent: Agent
  readonly toolkit: Toolkit
  readonly settings: RunSettings
  readonly journal: Journal
  readonly judgePermits: Semaphore
  readonly rewardPool: RewardPool | undefined
  readonly blockedRewards: BlockedRewards
  model(name: string): ModelClient
}
