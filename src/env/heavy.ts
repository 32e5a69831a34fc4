import { MillraceError } from '../errors/index.ts'
import type { Json } from '../schema/index.ts'
import { checkOptions } from './_check-options.ts'
import { checkTimeout } from './_check-timeout.ts'
import type { RewardContext } from './context.ts'
import type { RewardFunction } from './reward.ts'

/**
 * What a heavy reward gets: plain values, because it runs on another thread. There is no `state`, `budget`, `signal`,
 * `child`, `judge`, `metric` or `note` there; what it needs of the state, `note` it before the rollout ends.
 */
export interface HeavyRewardContext<Task, Options> extends Pick<
  RewardContext<Task, never, Options>,
  'task' | 'options' | 'rollout' | 'messages' | 'answer' | 'outcome' | 'truncated'
> {
  /** What `note` kept. */
  readonly info: Readonly<Record<string, Json>>
}

// Taken from a method for the same reason as `RewardFunction`.
export type HeavyRewardFunction<Task, Options> = {
  score(context: HeavyRewardContext<Task, Options>): number | boolean | Promise<number | boolean>
}['score']

export interface HeavyRewardOptions {
  /** Once it has started. 30 s if not given. The time kept for rewards, `limits.tailMs`, bounds it as well. */
  readonly timeoutMs?: number
}

/** What `heavy` was given, for those who run it. */
export interface HeavyReward {
  readonly score: HeavyRewardFunction<unknown, unknown>
  readonly timeoutMs: number
}

const optionNames: Readonly<Record<keyof HeavyRewardOptions, true>> = { timeoutMs: true }

const defaultTimeoutMs = 30_000

/** By the function that stands for it, which is a reward like any other to everybody else. */
const heavyRewards = new WeakMap<object, HeavyReward>()

/**
 * A reward that computes for longer than a few milliseconds. It runs on threads of its own, which load the environment's
 * module once, and is stopped for good when its time is up, also in the middle of an endless loop.
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
