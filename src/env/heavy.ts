import { MillraceError } from '../errors/index.ts'
import type { Json } from '../schema/index.ts'
import { checkOptions } from './_check-options.ts'
import { checkTimeout } from './_check-timeout.ts'
import type { RewardContext } from './context.ts'
import type { RewardFunction } from './reward.ts'

/**
 * The context of a heavy reward: plain values, because it runs on another thread. It has no `state`, `budget`, `signal`,
 * `child`, `judge`, `metric` or `note`; parts of the state that it needs must be kept with `note` before the rollout ends.
 */
export interface HeavyRewardContext<Task, Options> extends Pick<
  RewardContext<Task, never, Options>,
  'task' | 'options' | 'rollout' | 'messages' | 'answer' | 'outcome' | 'truncated'
> {
  /** The values that `note` kept. */
  readonly info: Readonly<Record<string, Json>>
}

// Declared through a method for the same reason as `RewardFunction`.
export type HeavyRewardFunction<Task, Options> = {
  score(context: HeavyRewardContext<Task, Options>): number | boolean | Promise<number | boolean>
}['score']

export interface HeavyRewardOptions {
  /** The time limit, from its start; 30 s if not given. `limits.tailMs`, the time for all rewards, bounds it as well. */
  readonly timeoutMs?: number
}

/** The arguments of `heavy`, for the code that runs it. */
export interface HeavyReward {
  readonly score: HeavyRewardFunction<unknown, unknown>
  readonly timeoutMs: number
}

const optionNames: Readonly<Record<keyof HeavyRewardOptions, true>> = { timeoutMs: true }

const defaultTimeoutMs = 30_000

/** Heavy rewards by the function that stands for each, which looks like any other reward. */
const heavyRewards = new WeakMap<object, HeavyReward>()

/**
 * A reward that computes for longer than a few milliseconds. It runs on threads of its own, which load the environment's
 * module once. It is stopped when its time is up, even in an endless loop.
 */
export function heavy<Task, State, Options>(
  score: HeavyRewardFunction<Task, Options>,
  options: HeavyRewardOptions = {},
): RewardFunction<Task, State, Options> {
  checkOptions('heavy()', options, optionNames)
  const { timeoutMs = defaultTimeoutMs } = options
  checkTimeout('a heavy reward', timeoutMs)
  const reward: RewardFunction<Task, State, Options> = () => {
    throw new MillraceError('env_invalid', 'a heavy reward cannot be called: it runs on threads of its own')
  }
  heavyRewards.set(reward, { score, timeoutMs })
  return reward
}

export function heavyRewardOf(reward: object): HeavyReward | undefined {
  return heavyRewards.get(reward)
}
