import { join } from 'node:path'
import { MillraceError } from '../errors/index.ts'
import { ToolOutputs } from '../tools/index.ts'
import { outcomes, type Limits, type Sampling } from '../schema/index.ts'
import { AgentRun } from './agent-run.ts'
import { attemptStart, StartTime } from './attempt-start.ts'
import type { RunServices } from './run-services.ts'
import { tearDown, type Closing } from './environment-life.ts'
import type { AttemptResult, RolloutJob, RunSettings } from './job.ts'
import { runChild } from './child-run.ts'
import { liveRolloutOf } from './live-rollout.ts'
import { openTask, setUpTask } from './open-task.ts'
import { missingServers, openTools, recordWithoutTools } from './open-tools.ts'
import { recordOf } from './record-of.ts'
import { rolloutEvents, traceOf } from './rollout-events.ts'
import { scoreWork, type ScoredWork } from './score-work.ts'
import type { RolloutTools } from './toolkit.ts'
import { whyNotResumable } from './why-not-resumable.ts'

/**
 * One attempt at one task, from setup to teardown. It always comes to a result; teardown runs once setup was started, whatever
 * happened in between. The time for reward and teardown is kept back from the agent's.
 */
export function runRollout(job: RolloutJob, services: RunServices, signal: AbortSignal): Promise<AttemptResult> {
  const start = new StartTime()
  if (!job.recorded) services.journal.append(attemptStart(job, start.at, null))
  const atOnce = services.toolkit.atOnce(job)
  if (atOnce) return runWithTools(job, services, { tools: atOnce, start, signal })
  return runWithServers(job, services, { start, signal })
}

async function runWithServers(
  job: RolloutJob,
  services: RunServices,
  { start, signal }: { start: StartTime; signal: AbortSignal },
): Promise<AttemptResult> {
  let tools: RolloutTools
  try {
    tools = await openTools(job, services, signal)
  } catch (thrown) {
    return { kind: 'ended', record: recordWithoutTools(job, services, { thrown, start, signal }), leaf: null }
  }
  try {
    return await runWithTools(job, services, { tools, start, signal })
  } finally {
    await tools.release?.()
  }
}

async function runWithTools(
  job: RolloutJob,
  services: RunServices,
  { tools, start, signal }: { tools: RolloutTools; start: StartTime; signal: AbortSignal },
): Promise<AttemptResult> {
  const why = whyNotResumable(job, tools.box, services.callStyle)
  if (why) return { kind: 'diverged', why }
  const { environment, settings } = services
  const toolsWaitMs = tools.release ? start.elapsedMs : 0
  const run = agentRunOf(job, services, { tools, toolsWaitMs, signal })
  let isTornDown = false
  try {
    // Most environments have no `setup`, and many rewards answer at once: only promises are awaited.
    const opening = environment.setup ? await setUpTask(run) : openTask(run)
    const worked = 'outcome' in opening ? opening : await run.run(services.agent, opening.prompt)
    const tailStartedAt = performance.now()
    const scoring = scoreWork(run, worked, signal)
    const scored = scoring instanceof Promise ? await scoring : scoring
    const { waitedMs: rewardWaitMs = 0 } = scored
    const rewardMs = performance.now() - tailStartedAt - rewardWaitMs
    run.requests.close()
    isTornDown = true
    const untilMs = tailStartedAt + settings.limits.tailMs
    const stuck = environment.teardown && (await tearDown(environment, closingOf(run), { untilMs, signal }))
    // The first cause of a failure stays; a teardown that fails after success is such a cause.
    const { end, score }: ScoredWork =
      stuck && outcomes[scored.end.outcome].scored ? { end: { outcome: 'env_error', error: stuck } } : scored
    const { metrics: reported, notes } = run.liveRollout
    const metrics = { ...reported, ...score?.metrics }
    const missing = missingServers(tools)
    const agentOutcome = worked.outcome
    run.countUnrepeated()
    const record = recordOf(run, {
      end,
      agentOutcome,
      start,
      score,
      rewardMs,
      metrics,
      notes,
      missing,
      waitedMs: toolsWaitMs + rewardWaitMs,
    })
    if (rolloutEvents.hasSubscribers) rolloutEvents.publish({ kind: 'end', record, isChild: false, trace: run.trace })
    return { kind: 'ended', record, leaf: run.session.leaf }
  } catch (error) {
    run.requests.close()
    if (!isTornDown) await tearDown(environment, closingOf(run))
    if (error instanceof MillraceError && error.code === 'replay_diverged') {
      return { kind: 'diverged', why: error.rawMessage }
    }
    throw error
  }
}

function agentRunOf(
  job: RolloutJob,
  services: RunServices,
  { tools, toolsWaitMs, signal }: { tools: RolloutTools; toolsWaitMs: number; signal: AbortSignal },
): AgentRun {
  const { settings, options } = services
  return new AgentRun({
    services,
    liveRollout: liveRolloutOf(job, { tools, outputs: outputsOf(job, services), options }),
    id: job.id,
    toolBox: tools.box,
    signal,
    startChild: runChild,
    model: services.model(settings.model),
    limits: limitsAfter(toolsWaitMs, settings.limits),
    sampling: samplingOf(job, settings),
    trace: traceOf(job),
  })
}

/** The wall clock has run while the rollout waited for its tools. */
function limitsAfter(spentMs: number, limits: Limits): Limits {
  return spentMs === 0 ? limits : { ...limits, wallTimeoutMs: Math.max(1, limits.wallTimeoutMs - spentMs) }
}

function outputsOf({ id, cassette }: RolloutJob, { environment, settings }: RunServices): ToolOutputs | undefined {
  const { toolOutput } = environment
  if (!toolOutput?.spill) return undefined
  if (settings.outputsFolder === undefined) {
    throw new MillraceError('internal', 'there is no folder for long tool outputs')
  }
  // A replay reads what the run kept and leaves it as it is.
  const isReadOnly = cassette?.end !== undefined
  return new ToolOutputs(join(settings.outputsFolder, id), toolOutput.maxChars, { isReadOnly })
}

function samplingOf({ sampling, seed }: RolloutJob, settings: RunSettings): Sampling {
  if (!sampling && !settings.sendSeed) return settings.sampling
  return { ...settings.sampling, ...(settings.sendSeed && { seed }), ...sampling }
}

function closingOf({ liveRollout: { task, options, identity, tools, state } }: AgentRun): Closing {
  return { task, options, rollout: identity, servers: tools.servers, state }
}
