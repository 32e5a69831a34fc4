import type { Environment } from '../env/index.ts'
import type { ToolCatalogue } from '../tools/index.ts'
import { Toolkit, type RolloutTools } from './toolkit.ts'

/** The tools that rollouts of an environment had, to look at: their servers are not opened, and no tool can be called. */
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
    synced: () => undefined,
    syncedSoon: () => undefined,
    written: () => undefined,
  }
  // A toolkit without servers holds nothing that would have to be closed.
  return new Toolkit(environment, options, journal, false).offered(catalogues)
}
