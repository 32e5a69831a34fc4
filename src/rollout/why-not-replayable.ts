import type { Engine } from './engine.ts'
import type { RolloutJob } from './job.ts'

/**
 * A rollout can go on where it was cut off only if every tool it had called may be called again or answered from the
 * journal. Says what stands against it; undefined if nothing does.
 */
export function whyNotReplayable(job: RolloutJob, tools: Engine['tools']): string | undefined {
  for (const nodes of Object.values(job.journalled ?? {})) {
    for (const { message } of nodes) {
      if (message.role !== 'assistant') continue
      for (const call of message.tool_calls ?? []) {
        const { name } = call.function
        if (tools.resumeRule(name) === 'restart') return `its tool ${name} does not say what to do on resume`
      }
    }
  }
  return undefined
}
