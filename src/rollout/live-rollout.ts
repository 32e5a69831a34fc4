import type { RolloutIdentity } from '../env/index.ts'
import { ownCopy } from '../kit/index.ts'
import type { Json } from '../schema/index.ts'
import type { ToolOutputs } from '../tools/index.ts'
import type { RolloutJob } from './job.ts'
import { VerdictReader } from './replay-verdicts.ts'
import type { RolloutTools } from './toolkit.ts'

/** A rollout while it runs, or is scored again: what its agent, its children and its rewards share. */
export interface LiveRollout {
  readonly job: RolloutJob
  readonly identity: RolloutIdentity
  /** The rollout's own copy, as `options` is: no other rollout sees what this one changes in it. */
  readonly task: unknown
  readonly options: unknown
  readonly tools: RolloutTools
  /** Outputs of tools that were too long to show; undefined where they are not kept. */
  readonly outputs: ToolOutputs | undefined
  state: unknown
  readonly metrics: Record<string, number>
  readonly notes: Record<string, Json>
  /** How often a child with the same opening was started in a place, so that each gets its own id. Made with the first child. */
  childIds?: Map<string, number>
  /** Recorded children whose spending is counted, by what their ids add to the rollout's: they ran again, or were kept. */
  countedChildren?: Set<string>
  /** Recorded verdicts of judges, where they are to be given again. */
  readonly verdicts?: VerdictReader
}

export function liveRolloutOf(
  job: RolloutJob,
  { tools, outputs, options }: Pick<LiveRollout, 'tools' | 'outputs' | 'options'>,
): LiveRollout {
  const { cassette } = job
  return {
    job,
    identity: { id: job.id, attempt: job.attempt, sample: job.sample, seed: job.seed },
    task: ownCopy(job.task.data),
    options: ownCopy(options),
    tools,
    outputs,
    state: undefined,
    metrics: { ...job.recorded?.reported?.metrics },
    notes: { ...job.recorded?.reported?.notes },
    ...(cassette && { verdicts: new VerdictReader(cassette.verdicts, cassette.end) }),
  }
}
