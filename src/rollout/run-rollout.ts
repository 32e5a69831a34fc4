import { toolLoop } from '../agents/index.ts'
import { scoreRollout, type ScoreResult } from '../env/index.ts'
import { MillraceError, type ErrorCode } from '../errors/index.ts'
import { AbortScope, raced } from '../kit/index.ts'
import { outcomes, type Message } from '../schema/index.ts'
import { AgentRun, type AgentEnd } from './agent-run.ts'
import type { Engine } from './engine.ts'
import type { AttemptResult, RolloutJob } from './job.ts'
import { runChild } from './child-run.ts'
import { situationOf, type Situation } from './situation.ts'
import { outcomeOfError } from './outcome-of-error.ts'
import { promptMessages } from './prompt-messages.ts'
import { recordOf } from './record-of.ts'
import { whyNotReplayable } from './why-not-replayable.ts'

/**
 * One attempt at one task, from setup to teardown. Always comes to a result; teardown runs once setup was started,
 * whatever happened in between. The time for reward and teardown is kept back from the agent's.
 */
export async function runRollout(job: RolloutJob, engine: Engine, signal: AbortSignal): Promise<AttemptResult> {
  const why = whyNotReplayable(job, engine.tools)
  if (why) return { kind: 'diverged', why }
  const startedAt = Date.now()
  const { environment, settings } = engine
  const situation = situationOf(job)
  if (!job.journalled) {
    engine.journal.append({
      kind: 'attempt-start',
      rollout: job.id,
      attempt: job.attempt,
      parent: null,
      task: job.task.index,
      sample: job.sample,
      at: startedAt,
    })
  }
  const run = new AgentRun({
    engine,
    situation,
    id: job.id,
    signal,
    startChild: runChild,
    model: engine.model(settings.model),
    limits: settings.limits,
    sampling: settings.sendSeed ? { ...settings.sampling, seed: job.seed } : settings.sampling,
  })
  let end: AgentEnd
  try {
    end = await workOnTask(run, situation, engine)
  } catch (error) {
    await tearDown(situation, engine, signal).catch(() => {})
    if (error instanceof MillraceError && error.code === 'replay_diverged') {
      return { kind: 'diverged', why: error.rawMessage }
    }
    throw error
  }
  const { tailMs } = settings.limits
  using tail = new AbortScope(signal, tailMs, () => {
    return new MillraceError('reward_failed', `reward and teardown took longer than the ${tailMs} ms kept for them`)
  })
  const rewardStartedAt = performance.now()
  let score: ScoreResult | undefined
  if (outcomes[end.outcome].scored) {
    try {
      score = await rewardOf(run, end, engine, tail.signal)
    } catch (error) {
      end = failedEnd(error, 'reward_failed', signal)
    }
  }
  const rewardMs = performance.now() - rewardStartedAt
  if (environment.teardown) {
    try {
      await tearDown(situation, engine, tail.signal)
    } catch (error) {
      // The first cause of a failure stays; a teardown that fails after success is one.
      if (outcomes[end.outcome].scored) end = failedEnd(error, 'teardown_failed', signal)
      score = undefined
    }
  }
  const record = recordOf({
    engine,
    job,
    run,
    end,
    startedAt,
    score,
    rewardMs,
    metrics: { ...situation.metrics, ...score?.metrics },
    notes: situation.notes,
  })
  return { kind: 'ended', record, leaf: run.session.leaf }
}

async function workOnTask(run: AgentRun, situation: Situation, engine: Engine): Promise<AgentEnd> {
  const { environment, options } = engine
  const context = { task: situation.task, options, rollout: situation.identity, signal: run.signal }
  let prompt: readonly Message[]
  try {
    if (environment.setup) {
      // Setting up is not the agent's work, so its clock stands still; the wall clock does not.
      run.budget.startWait()
      try {
        situation.state = await raced(
          Promise.try(() => environment.setup?.(context)),
          run.signal,
        )
      } finally {
        run.budget.endWait()
      }
    }
    prompt = promptMessages(environment.prompt({ ...context, state: situation.state }))
  } catch (error) {
    run.abandon()
    return failedEnd(error, 'setup_failed', run.signal)
  }
  return await run.run(environment.agent ?? toolLoop(), prompt)
}

function rewardOf(
  run: AgentRun,
  end: AgentEnd,
  engine: Engine,
  signal: AbortSignal,
): ScoreResult | Promise<ScoreResult> {
  const { context } = run
  context.outcome = end.outcome
  context.truncated = outcomes[end.outcome].truncated
  context.signal = signal
  const result = scoreRollout(engine.environment, context)
  return result instanceof Promise ? raced(result, signal) : result
}

async function tearDown(situation: Situation, engine: Engine, signal: AbortSignal): Promise<void> {
  const { environment, options } = engine
  if (!environment.teardown) return
  const { task, identity, state } = situation
  const context = { task, options, rollout: identity, signal, state }
  await raced(
    Promise.try(() => environment.teardown?.(context)),
    signal,
  )
}

/** A phase outside the agent failed: by its own fault, or because somebody stopped the rollout. */
function failedEnd(thrown: unknown, code: ErrorCode, signal: AbortSignal): AgentEnd {
  if (signal.aborted) {
    const error = MillraceError.from(signal.reason, 'cancelled')
    return { outcome: outcomeOfError(error), error }
  }
  const error =
    thrown instanceof MillraceError && thrown.code !== code
      ? new MillraceError(code, thrown.rawMessage, { data: thrown.data, cause: thrown })
      : MillraceError.from(thrown, code)
  return { outcome: code === 'reward_failed' ? 'reward_error' : 'env_error', error }
}
