import type { MessageNode } from '../schema/index.ts'
import type { WrittenCall } from '../tools/index.ts'
import type { CallStyle } from './call-style.ts'
import { callsIn } from './calls-in.ts'
import type { RolloutJob } from './job.ts'
import type { RolloutTools } from './toolkit.ts'

/**
 * Why a rollout cannot go on where it was cut off; undefined if it can. Every tool it had called must be one that may be called
 * again, or answered from the journal.
 */
export function whyNotResumable(job: RolloutJob, tools: RolloutTools['box'], style: CallStyle): string | undefined {
  if (!job.recorded) return undefined
  const call = unresumableCall(Object.values(job.recorded.nodes), tools, style)
  return call && `its tool ${call.function.name} does not say what to do on resume`
}

/** The first call in these conversations that can be neither made again nor answered from the journal. */
export function unresumableCall(
  conversations: Iterable<readonly MessageNode[]>,
  tools: RolloutTools['box'],
  style: CallStyle,
): WrittenCall | undefined {
  for (const nodes of conversations) {
    for (const call of callsIn(nodes, style)) if (tools.resumeRule(call) === 'restart') return call
  }
  return undefined
}
