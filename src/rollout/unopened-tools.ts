import type { Environment } from '../env/index.ts'
import { declaredServers, type ToolCatalogue } from '../tools/index.ts'
import { EnvironmentTools } from './environment-tools.ts'
import type { RolloutTools } from './toolkit.ts'

/** The tools that rollouts of an environment had, to look at: their servers are not opened, and no tool can be called. */
export function unopenedTools(
  environment: Environment,
  options: unknown,
  catalogues: readonly ToolCatalogue[],
): RolloutTools['box'] {
  return new EnvironmentTools(environment, declaredServers(environment, options).servers).withRecorded(catalogues)
}
