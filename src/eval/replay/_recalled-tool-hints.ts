import type { LoadedEnvironment } from '../../env/index.ts'
import { callsIn, callStyleOf, unopenedTools } from '../../rollout/index.ts'
import type { Recording } from './recording.ts'
import type { StoredRunConfig } from './stored-config.ts'

/** Names the environment's own tools that were answered from the recording, by the tool's name, not the one the model used. */
export function recalledToolHints(
  { sessions }: Recording,
  { environment, options }: LoadedEnvironment,
  config: StoredRunConfig,
): string[] {
  const box = unopenedTools(environment, options, [])
  const style = callStyleOf(config)
  const recalled = new Set<string>()
  for (const { nodes } of sessions) {
    for (const call of callsIn(nodes, style)) {
      const { tool } = box.planned(call)
      if (tool !== undefined && environment.tools?.[tool] && box.resumeRule(call) !== 'rerun') recalled.add(tool)
    }
  }
  if (recalled.size === 0) return []
  return [
    `${[...recalled].join(', ')} did not run: the recorded answers were taken. A tool that changes the rollout's state must ` +
      "say so with resume: 'rerun', or what looks at that state sees another one",
  ]
}
