import { join } from 'node:path'
import { MillraceError } from '../../errors/index.ts'
import { AbortScope } from '../../kit/index.ts'
import { outcomes, type RolloutRecord } from '../../schema/index.ts'
import { ToolOutputs } from '../../tools/index.ts'
import { AgentRun } from '../agent/agent-run.ts'
import { spent } from '../agent/budget.ts'
import { whyNotResumable } from '../agent/agent-calls.ts'
import { runChild } from '../agent/child-run.ts'
import { failedEnd, type AgentEnd } from '../result/outcome.ts'
import { recordOf, recordWithoutRun } from '../result/record.ts'
import { rolloutEvents, traceOf } from '../result/rollout-events.ts'
import { type ScoredEnd, scoreEnd } from '../reward/score.ts'
import type { AttemptResult, RolloutJob } from '../schedule/executor.ts'
import { attemptEvent, attemptResumed, attemptStart, openingEvent, StartTime } from '../schedule/journal-entries.ts'
import { liveRolloutOf, type RunServices } from './live-rollout.ts'
import { type TeardownContext, prepareTask, tearDown } from './setup-teardown.ts'
import type { RolloutTools } from './toolkit.ts'

/** One attempt at one task, from setup to teardown, which runs once setup was started, whatever happened. */
export async function runRollout(job: RolloutJob, services: RunServices, signal: AbortSignal): Promise<AttemptResult> {
  const start = new StartTime()
  const isResumed = job.recording?.purpose === 'resume'
  services.journal.append(isResumed ? attemptResumed(job) : attemptStart(job, start.at, null))
  const { messages } = job.opening ?? {}
  // A replay begins with the same ones.
  if (messages && !isResumed) services.journal.append(attemptEvent(job, openingEvent, { messages }))
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
  const { environment, settings } = services
  const why = whyNotResumable(job, tools.box, settings)
  if (why) return { kind: 'diverged', why }
  const toolsWaitMs = tools.release ? start.elapsedMs : 0
  const run = agentRunOf(job, services, { tools, toolsWaitMs, signal })
  let worked: AgentEnd
  let scored: ScoredEnd
  let tailStartedAt: number
  try {
    const opening = await prepareTask(run)
    worked = 'outcome' in opening ? opening : await run.run(services.agent, opening.prompt)
    tailStartedAt = performance.now()
    scored = await scoreEnd(run, worked, signal)
  } catch (error) {
    run.requests.close()
    await tearDown(environment, closingOf(run))
    if (!(error instanceof MillraceError) || error.code !== 'replay_diverged') throw error
    return { kind: 'diverged', why: error.rawMessage }
  }
  const rewardWaitMs = scored.waitedMs ?? 0
  const rewardMs = performance.now() - tailStartedAt - rewardWaitMs
  run.requests.close()
  const stuck = await tearDown(environment, closingOf(run), { untilMs: tailStartedAt + settings.limits.tailMs, signal })
  // The first cause of a failure stays; a teardown that fails after success is such a cause.
  const { end, score }: ScoredEnd =
    stuck && outcomes[scored.end.outcome].scored ? { end: { outcome: 'env_error', error: stuck } } : scored
  const { metrics, notes } = run.liveRollout
  const record = recordOf(run, {
    end,
    agentOutcome: worked.outcome,
    start,
    score,
    rewardMs,
    metrics: { ...metrics, ...score?.metrics },
    notes,
    missing: tools.failures.map(({ server, error }) => ({ server, cause: error.rawMessage.slice(0, maxCauseChars) })),
    waitedMs: toolsWaitMs + rewardWaitMs,
  })
  if (rolloutEvents.hasSubscribers) rolloutEvents.publish({ kind: 'end', record, isChild: false, trace: run.trace })
  return { kind: 'ended', record, leaf: run.session.leaf }
}

function agentRunOf(
  job: RolloutJob,
  services: RunServices,
  { tools, toolsWaitMs, signal }: { tools: RolloutTools; toolsWaitMs: number; signal: AbortSignal },
): AgentRun {
  const { settings, options } = services
  const { limits, sendSeed } = settings
  return new AgentRun({
    services,
    liveRollout: liveRolloutOf(job, { tools, outputs: outputsOf(job, services), options }),
    id: job.id,
    toolBox: tools.box,
    signal,
    startChild: runChild,
    model: services.model(settings.model),
    // The wall clock has run while the rollout waited for its tools.
    limits: { ...limits, wallTimeoutMs: Math.max(1, limits.wallTimeoutMs - toolsWaitMs) },
    sampling: { ...tools.sampling, ...settings.sampling, ...(sendSeed && { seed: job.seed }), ...job.sampling },
    trace: traceOf(job, settings.run),
  })
}

export function outputsOf(
  { id, recording }: Pick<RolloutJob, 'id' | 'recording'>,
  { environment, settings }: Pick<RunServices, 'environment' | 'settings'>,
): ToolOutputs | undefined {
  const { toolOutput } = environment
  if (!toolOutput?.spill) return undefined
  if (settings.outputsFolder === undefined) {
    throw new MillraceError('internal', 'there is no folder for long tool outputs')
  }
  // A replay reads what the run kept and leaves it as it is.
  const isReadOnly = recording?.purpose === 'replay'
  return new ToolOutputs(join(settings.outputsFolder, id), toolOutput.maxChars, { isReadOnly })
}

function closingOf({ liveRollout: { task, options, identity, tools, state } }: AgentRun): TeardownContext {
  return { task, options, rollout: identity, servers: tools.servers, state }
}

/** The wait for tool servers does not count as the agent's time, but the wall clock goes on. */
async function openTools(job: RolloutJob, services: RunServices, signal: AbortSignal): Promise<RolloutTools> {
  const { wallTimeoutMs, tailMs } = services.settings.limits
  const why = (): MillraceError => spent('wall', 'the wall-clock limit was reached before the tool servers were ready')
  using scope = new AbortScope(signal, Math.max(0, wallTimeoutMs - tailMs), why)
  return await services.toolkit.lease(job, scope.signal)
}

/** A cause is often a process's last output; the journal has it whole (`mcp.missing`). */
const maxCauseChars = 500

function recordWithoutTools(
  job: RolloutJob,
  { environment, settings }: RunServices,
  { thrown, start, signal }: { thrown: unknown; start: StartTime; signal: AbortSignal },
): RolloutRecord {
  const { outcome, error } = failedEnd(thrown, 'setup_failed', { signal })
  const ended = recordWithoutRun({
    id: job.id,
    environment: environment.name,
    model: settings.model,
    task: { index: job.task.index, id: job.task.id },
    sample: job.sample,
    attempt: job.attempt,
    outcome,
    error: error ?? MillraceError.from(thrown, 'tool_infra'),
    start,
  })
  // The rollout did nothing but wait for its tools.
  const record = { ...ended, timing: { ...ended.timing, waitMs: ended.timing.wallMs } }
  if (rolloutEvents.hasSubscribers) {
    rolloutEvents.publish({ kind: 'end', record, isChild: false, trace: traceOf(job, settings.run) })
  }
  return record
}
