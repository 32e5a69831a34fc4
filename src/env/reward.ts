import type { RewardContext } from './context.ts'
import type { GroupMember } from './group.ts'

// Declared through a method, so that an environment of any task type is an `Environment` without a cast.
export type RewardFunction<Task, State, Options> = {
  score(context: RewardContext<Task, State, Options>): number | boolean | Promise<number | boolean>
}['score']

/** Scores all members of a group at once: one number per member, in order. */
export type GroupRewardFunction<Task, Options> = {
  score(group: GroupRewardContext<Task, Options>): readonly number[] | Promise<readonly number[]>
}['score']

export interface GroupRewardContext<Task, Options> {
  readonly task: Task
  readonly options: Options
  /** Only the members that may get a reward. */
  readonly members: readonly GroupMember[]
  readonly signal: AbortSignal
}

/**
 * A named component of the reward. A rollout's reward is the sum of weight times score; a component of weight 0 is a metric.
 */
export type Reward<Task, State, Options> =
  | RewardFunction<Task, State, Options>
  | { readonly weight?: number; readonly score: RewardFunction<Task, State, Options> }
  | { readonly weight?: number; readonly group: GroupRewardFunction<Task, Options> }
