import { hasHeavyReward, type Environment } from '../env/index.ts'
import { MillraceError } from '../errors/index.ts'
import type { EnvironmentModule } from './reward-pool-messages.ts'

/** The module that threads for heavy rewards load; undefined if no reward is heavy. Throws `env_invalid` if there is none. */
export function heavyRewardModule(
  environment: Environment,
  module: EnvironmentModule | undefined,
): EnvironmentModule | undefined {
  if (!hasHeavyReward(environment)) return undefined
  if (module) return module
  throw new MillraceError(
    'env_invalid',
    `${environment.name} has a heavy reward, which runs on threads that load the environment themselves: give the ` +
      'environment as a module, by its path or name, not as an object',
  )
}
