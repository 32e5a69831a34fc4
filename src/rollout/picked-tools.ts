import { readOutputToolName } from '../tools/index.ts'
import type { LiveRollout } from './live-rollout.ts'
import type { RolloutTools } from './toolkit.ts'

/** The tools of one agent: all of the rollout's, or those that are named. */
export function pickedTools({ tools, outputs }: LiveRollout, names?: readonly string[]): RolloutTools['box'] {
  if (!names) return tools.box
  // An agent that may call tools whose long outputs are kept must be able to read those.
  const needsReader = outputs && names.length > 0 && !names.includes(readOutputToolName)
  return tools.box.pick(needsReader ? [...names, readOutputToolName] : names)
}
