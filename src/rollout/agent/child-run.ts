import { toolLoop } from '../../agents/index.ts'
import type { ChildRequest, ChildResult } from '../../env/index.ts'
import { messageJson } from '../../apis/index.ts'
import { derivedSeed, hash32 } from '../../kit/index.ts'
import type { Limits, Message } from '../../schema/index.ts'
import { endsAttempt } from '../../tools/index.ts'
import { recordOf } from '../result/record.ts'
import { rolloutEvents, traceOf } from '../result/rollout-events.ts'
import { attemptEnd, attemptResumed, attemptStart, StartTime } from '../schedule/journal-entries.ts'
import { pickedTools } from './agent-calls.ts'
import { AgentRun, type ChildStart } from './agent-run.ts'

/** Also for a child whose environment has an agent of its own: that agent is written for the environment's tasks. */
const standardAgent = toolLoop()

/** A rollout inside a rollout: its own conversation, its parent's tools, state and budget. */
export async function runChild(
  request: ChildRequest,
  parent: AgentRun,
  { idPart, signal, askedBy, isForReward = false }: ChildStart,
): Promise<ChildResult> {
  const { services, liveRollout } = parent
  const { job } = liveRollout
  const prompt: readonly Message[] =
    typeof request.prompt === 'string' ? [{ role: 'user', content: request.prompt }] : request.prompt
  liveRollout.childIds ??= new Map()
  const id = childId(parent.id, idPart, prompt, liveRollout.childIds)
  const { settings } = services
  const seed = derivedSeed(liveRollout.identity.seed, id)
  const reviews = isForReward || parent.reviews
  const start = new StartTime()
  const run = new AgentRun({
    services,
    liveRollout,
    id,
    parent,
    hasOwnBudget: isForReward,
    askedBy,
    signal,
    model: services.model(request.model ?? settings.model),
    toolBox: request.tools ? pickedTools(liveRollout.tools.box, request.tools, liveRollout) : liveRollout.tools.box,
    startChild: runChild,
    limits: limitsFor(request, settings.limits),
    sampling: {
      // What a task or a request asks of the policy is not asked of whoever reviews it.
      ...(!reviews && liveRollout.tools.sampling),
      ...settings.sampling,
      ...(!reviews && job.sampling),
      ...request.sampling,
      ...(settings.sendSeed && { seed }),
    },
    trace: traceOf(job, settings.run, { id, parent: parent.trace }),
  })
  const began = { ...job, id }
  services.journal.append(run.isResumed ? attemptResumed(began) : attemptStart(began, start.at, parent.id))
  parent.tally.addChild()
  const end = await run.run(request.agent ?? standardAgent, prompt)
  const { error } = end
  const record = recordOf(run, { end, start })
  if (rolloutEvents.hasSubscribers) rolloutEvents.publish({ kind: 'end', record, isChild: true, trace: run.trace })
  services.journal.append(attemptEnd({ record, leaf: run.session.leaf }, true))
  // The parent uses the same tool servers and writes to the same journal, so this error ends the parent's attempt as well.
  if (endsAttempt(end.error)) throw end.error
  return {
    id,
    outcome: end.outcome,
    ...(error && { error }),
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

/** The id depends on what the child is asked, not on when: a resumed parent finds it in whatever order children run. */
function childId(parent: string, idPart: string, prompt: readonly Message[], given: Map<string, number>): string {
  const base = `${parent}.${idPart}-${hash32(...prompt.map(messageJson)).toString(36)}`
  const earlier = given.get(base) ?? 0
  given.set(base, earlier + 1)
  return earlier === 0 ? base : `${base}-${earlier + 1}`
}
