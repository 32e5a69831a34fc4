import type { Environment } from '../env/index.ts'
import type { ToolCatalogue } from '../tools/index.ts'
import { Toolkit, type RolloutTools } from './toolkit.ts'

/** The tools that rollouts of an environment had, to look at: its servers are not opened, and none can be called. */
export function unopenedTools(
  environment: Environment,
  options: unknown,
  catalogues: readonly ToolCatalogue[],
): RolloutTools['box'] {
  const journal = {
    pressure: 0,
    append() {},
    appendAll() {},
    durable: () => undefined,
    durableSoon: () => undefined,
    written: () => undefined,
  }
  // Without servers it holds nothing, so that nothing is to be closed.
  return new Toolkit(environment, options, journal, false).offered(catalogues)
}
