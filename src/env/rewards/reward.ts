import { MillraceError } from '../../errors/index.ts'
import type { StopClock } from '../../kit/index.ts'
import type { Json, Message, Outcome } from '../../schema/index.ts'
import { checkOptions, timeoutSchema } from '../define/check-options.ts'
import type { RewardContext } from '../define/context.ts'

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

/** A component of the reward, which is the sum of weight times score; a component of weight 0 is a metric. */
export type Reward<Task, State, Options> =
  | RewardFunction<Task, State, Options>
  | { readonly weight?: number; readonly score: RewardFunction<Task, State, Options> }
  | { readonly weight?: number; readonly group: GroupRewardFunction<Task, Options> }

/** One rollout of a group as a group reward sees it: a plain value, whichever worker ran it. */
export interface GroupMember {
  readonly id: string
  readonly sample: number
  readonly outcome: Outcome
  readonly truncated: boolean
  readonly answer: string
  readonly messages: readonly Message[]
  readonly scores: Readonly<Record<string, number>>
  readonly info: Readonly<Record<string, Json>>
}

/**
 * The effect of a failed member on its group. `keep`: the others are scored without it. `replace`: it runs again, as a new
 * attempt, until its tries are used up; then as with `void`. `void`: no member of the group gets a reward.
 */
export type GroupPolicy = 'keep' | 'replace' | 'void'

/** The key of the clock of the time kept for a reward: only rewards of this library, which wait in a queue, look at it. */
export const rewardClock = Symbol('rewardClock')

/** A context of a reward that has a clock; those that are made in tests have none. */
export interface TimedContext {
  readonly [rewardClock]?: Pick<StopClock, 'startWait' | 'endWait'> | undefined
}

/**
 * The context of an offloaded reward: plain values, because it runs on another thread. It has no `state`, `budget`, `signal`,
 * `child`, `judge`, `metric` or `note`; parts of the state that it needs must be kept with `note` before the rollout ends.
 */
export interface OffloadedRewardContext<Task, Options> extends Pick<
  RewardContext<Task, never, Options>,
  'task' | 'options' | 'rollout' | 'messages' | 'answer' | 'outcome' | 'truncated'
> {
  /** The values that `note` kept. */
  readonly info: Readonly<Record<string, Json>>
}

// Declared through a method for the same reason as `RewardFunction`.
export type OffloadedRewardFunction<Task, Options> = {
  score(context: OffloadedRewardContext<Task, Options>): number | boolean | Promise<number | boolean>
}['score']

export interface OffloadedRewardOptions {
  /** The time limit, from its start; 30 s if not given. `limits.tailMs`, the time for all rewards, bounds it as well. */
  readonly timeoutMs?: number
}

export interface OffloadedReward {
  readonly score: OffloadedRewardFunction<unknown, unknown>
  readonly timeoutMs: number
}

const defaultTimeoutMs = 30_000

/** Offloaded rewards by the function that stands for each, which looks like any other reward. */
const offloadedRewards = new WeakMap<object, OffloadedReward>()

/**
 * A reward that computes for longer than a few milliseconds. It runs on threads of its own, which load the environment's
 * module once. It is stopped when its time is up, even in an endless loop.
 */
export function offload<Task, State, Options>(
  score: OffloadedRewardFunction<Task, Options>,
  options: OffloadedRewardOptions = {},
): RewardFunction<Task, State, Options> {
  checkOptions('offload()', { timeoutMs: timeoutSchema.optional() }, options)
  const { timeoutMs = defaultTimeoutMs } = options
  const reward: RewardFunction<Task, State, Options> = () => {
    throw new MillraceError('env_invalid', 'an offloaded reward cannot be called: it runs on threads of its own')
  }
  offloadedRewards.set(reward, { score, timeoutMs })
  return reward
}

export function offloadedRewardOf(reward: object): OffloadedReward | undefined {
  return offloadedRewards.get(reward)
}
