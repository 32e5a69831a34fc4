import type { Environment } from './define-environment.ts'
import { heavyRewardOf, type HeavyReward } from './heavy.ts'
import type { GroupRewardFunction, RewardFunction } from './reward.ts'

export interface RolloutComponent {
  readonly name: string
  readonly weight: number
  readonly score: RewardFunction<unknown, unknown, unknown>
  /** Set for a component that must not run on this thread. */
  readonly heavy: HeavyReward | undefined
}

export interface GroupComponent {
  readonly name: string
  readonly weight: number
  readonly group: GroupRewardFunction<unknown, unknown>
}

export interface RewardComponents {
  readonly perRollout: readonly RolloutComponent[]
  readonly perGroup: readonly GroupComponent[]
}

const cache = new WeakMap<Environment['reward'], RewardComponents>()

/**
 * The components of an environment's reward, each with its name and weight. A single function is one component, named
 * `reward`.
 */
export function rewardComponents({ reward }: Environment): RewardComponents {
  const known = cache.get(reward)
  if (known) return known
  const components = typeof reward === 'function' ? single(reward) : several(reward)
  cache.set(reward, components)
  return components
}

function single(score: RolloutComponent['score']): RewardComponents {
  return { perRollout: [rolloutComponent('reward', 1, score)], perGroup: [] }
}

function several(rewards: Exclude<Environment['reward'], (...args: never) => unknown>): RewardComponents {
  const perRollout: RolloutComponent[] = []
  const perGroup: GroupComponent[] = []
  for (const [name, reward] of Object.entries(rewards)) {
    if (typeof reward === 'function') perRollout.push(rolloutComponent(name, 1, reward))
    else if ('group' in reward) perGroup.push({ name, weight: reward.weight ?? 1, group: reward.group })
    else perRollout.push(rolloutComponent(name, reward.weight ?? 1, reward.score))
  }
  return { perRollout, perGroup }
}

function rolloutComponent(name: string, weight: number, score: RolloutComponent['score']): RolloutComponent {
  return { name, weight, score, heavy: heavyRewardOf(score) }
}
