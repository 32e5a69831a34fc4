import { constants, existsSync } from 'node:fs'
import { cp } from 'node:fs/promises'
import { join } from 'node:path'
import type { TaskItem, ValidTask } from '../../env/index.ts'
import { derivedSeed } from '../../kit/index.ts'
import type { PromptOverride, PlannedRollout, Recording } from '../../rollout/index.ts'
import { rolloutId } from '../../schema/index.ts'

/** The rollout that a fork's rollouts go on from, and how many of its turns they repeat. */
export interface ForkOrigin {
  readonly run: string
  readonly rollout: string
  readonly turn: number
}

/** How the rollouts of a run begin that goes on from the middle of a stored rollout. */
export interface Fork {
  /** Kept with the run, and part of the digest that says whether two runs are the same experiment. */
  readonly from: ForkOrigin & {
    readonly attempt: number
    /** The stored rollout's seed, so that its environment draws the same again. */
    readonly seed: number
    readonly system?: string
    readonly prompt?: string
    readonly reusesTools?: boolean
  }
  readonly task: ValidTask
  readonly recording: Recording
  readonly opening?: PromptOverride
  /** Where the stored rollout's long tool outputs are kept, if it has any: its messages say how to read on in them. */
  readonly outputs: string
  /** Models that the stored rollout asked beside the one that made it: their keys are needed. */
  readonly asked: ReadonlySet<string>
}

/** Nobody writes a fork by hand: an object with these parts was made by `forkRollout`. */
export function isFork(value: unknown): value is Fork {
  const parts = ['from', 'task', 'recording', 'outputs', 'asked'] satisfies (keyof Fork)[]
  return typeof value === 'object' && value !== null && parts.every((part) => part in value)
}

export function originOf({ from }: Fork): ForkOrigin {
  const { run, rollout, turn } = from
  return { run, rollout, turn }
}

export async function copyOutputs({ outputs, task }: Fork, folder: string, samples: number): Promise<void> {
  if (!existsSync(outputs)) return
  for (let sample = 0; sample < samples; sample += 1) {
    const copy = join(folder, rolloutId(task.index, sample))
    // Where the file system can, a copy shares its blocks with the original until one is written.
    await cp(outputs, copy, { recursive: true, force: false, mode: constants.COPYFILE_FICLONE })
  }
}

export async function* forkedTask({ task }: Fork): AsyncGenerator<TaskItem, void, void> {
  yield task
}

/** Puts the recording into each plan. Where seeds are sent, every sample has one of its own. */
export async function* forkedPlans(
  plans: AsyncIterable<PlannedRollout>,
  fork: Fork,
  sendSeed: boolean,
): AsyncGenerator<PlannedRollout, void, void> {
  const { recording, opening } = fork
  for await (const plan of plans) {
    if (plan.kind === 'settled') yield plan
    else {
      const id = plan.kind === 'held' ? plan.held.record.id : plan.id
      yield {
        ...plan,
        recording,
        ...(opening && { opening }),
        ...(sendSeed && { sampling: { seed: derivedSeed(fork.from.seed, id, 'fork') } }),
      }
    }
  }
}
