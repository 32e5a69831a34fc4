import { toolLoop } from '../agents/index.ts'
import type { ChildRequest, ChildResult } from '../env/index.ts'
import { derivedSeed } from '../kit/index.ts'
import type { Limits, Message } from '../schema/index.ts'
import { endsAttempt } from '../tools/index.ts'
import type { ChildStart } from './agent-requests.ts'
import { AgentRun } from './agent-run.ts'
import { attemptStart, StartTime } from './attempt-start.ts'
import { childId } from './child-id.ts'
import { attemptEnd } from './end-entries.ts'
import { pickedTools } from './picked-tools.ts'
import { recordOf } from './record-of.ts'
import { rolloutEvents, traceOf } from './rollout-events.ts'

/** Also for a child whose environment has an agent of its own: that agent is written for the environment's tasks. */
const standardAgent = toolLoop()

/** A rollout inside a rollout: its own conversation, its parent's tools, state and budget. */
export async function runChild(
  request: ChildRequest,
  parent: AgentRun,
  { place, signal, askedBy }: ChildStart,
): Promise<ChildResult> {
  const { services, liveRollout } = parent
  const { job } = liveRollout
  const prompt: readonly Message[] =
    typeof request.prompt === 'string' ? [{ role: 'user', content: request.prompt }] : request.prompt
  liveRollout.childIds ??= new Map()
  const id = childId(parent.id, place, prompt, liveRollout.childIds)
  const { settings } = services
  const seed = derivedSeed(liveRollout.identity.seed, id)
  const start = new StartTime()
  const run = new AgentRun({
    services,
    liveRollout,
    id,
    parent,
    askedBy,
    signal,
    model: services.model(request.model ?? settings.model),
    toolBox: pickedTools(liveRollout, request.tools),
    startChild: runChild,
    limits: limitsFor(request, settings.limits),
    sampling: { ...settings.sampling, ...request.sampling, ...(settings.sendSeed && { seed }) },
    trace: traceOf(job, id, parent.trace),
  })
  if (job.recorded?.nodes[id]) (liveRollout.countedChildren ??= new Set()).add(id.slice(job.id.length))
  else services.journal.append(attemptStart({ ...job, id }, start.at, parent.id))
  parent.tally.addChild()
  const end = await run.run(request.agent ?? standardAgent, prompt)
  run.countUnrepeated()
  const record = recordOf(run, { end, start })
  if (rolloutEvents.hasSubscribers) rolloutEvents.publish({ kind: 'end', record, isChild: true, trace: run.trace })
  services.journal.append(attemptEnd({ record, leaf: run.session.leaf }, true))
  // The parent uses the same tool servers and writes to the same journal, so this error ends the parent's attempt as well.
  if (end.error && endsAttempt(end.error)) throw end.error
  return {
    id,
    outcome: end.outcome,
    answer: run.answer ?? '',
    messages: run.messages,
    turns: run.turns,
    usage: record.usage,
  }
}

/** The child's own limits win over the run's. A limit that is named but undefined must not remove the run's. */
function limitsFor({ limits = {} }: ChildRequest, ofAll: Limits): Limits {
  const own = Object.entries(limits).filter(([, limit]) => limit !== undefined)
  return { ...ofAll, ...Object.fromEntries(own) }
}
