import type { MillraceError } from '../../errors/index.ts'
import {
  emptyUsage,
  type Json,
  type MissingServer,
  type Outcome,
  outcomes,
  type RewardComponent,
  type RolloutRecord,
} from '../../schema/index.ts'
import type { AgentRun } from '../agent/agent-run.ts'
import type { AttemptSpending } from '../../store/index.ts'
import { StartTime } from '../schedule/journal-entries.ts'
import { type AgentEnd, agentOutcomeBehind } from './outcome.ts'

interface RecordParts {
  readonly end: AgentEnd
  /** How the agent ended; the reward or `teardown` may have changed the rollout's end since. */
  readonly agentOutcome?: Outcome
  readonly start: StartTime
  readonly score?: { reward: number; rewards: Record<string, RewardComponent> } | undefined
  readonly metrics?: Record<string, number>
  readonly notes?: Record<string, Json>
  readonly missing?: readonly MissingServer[]
  readonly rewardMs?: number
  /** How long the rollout waited while its agent did not run: for its tools before, and in its reward afterwards. */
  readonly waitedMs?: number
}

export function recordOf(run: AgentRun, parts: RecordParts): RolloutRecord {
  const { end, start, score } = parts
  const { services, liveRollout, tally, budget, time } = run
  const { job } = liveRollout
  const { scored, truncated } = outcomes[end.outcome]
  const record: RolloutRecord = {
    id: run.id,
    environment: services.environment.name,
    model: run.model,
    task: { index: job.task.index, id: job.task.id },
    sample: job.sample,
    attempt: job.attempt,
    outcome: end.outcome,
    truncated,
    reward: score?.reward ?? null,
    rewards: score?.rewards ?? {},
    metrics: parts.metrics ?? {},
    answer: run.answer,
    turns: run.turns,
    toolCalls: tally.toolCalls,
    toolErrors: tally.toolErrors,
    children: tally.children,
    // Copies, so that the record stays as it is if late calls are still counted.
    usage: { ...tally.usage },
    judgeUsage: { ...tally.judgeUsage },
    cost: tally.costUsd,
    timing: {
      startedAt: start.at,
      wallMs: start.elapsedMs,
      workingMs: Math.round(budget.workingMs),
      waitMs: Math.round(budget.waitedMs + (parts.waitedMs ?? 0)),
      modelMs: Math.round(tally.modelMs),
      toolMs: Math.round(tally.toolMs),
      rewardMs: Math.round(parts.rewardMs ?? 0),
    },
    messages: run.messages,
  }
  // Fields that most records lack are added afterwards: an object literal with conditional spreads is made field by field.
  const { hiddenPromptLength } = run
  if (hiddenPromptLength !== undefined) record.promptLength = hiddenPromptLength
  if (end.error && !scored) record.error = end.error.toWire()
  if (end.outcome === 'reward_error') Object.assign(record, agentOutcomeBehind(parts.agentOutcome ?? end.outcome))
  if (time.cutOffIn !== undefined && outcomes[parts.agentOutcome ?? end.outcome].truncated)
    record.cutOffIn = time.cutOffIn
  if (job.isScored === false) record.unscored = true
  if (tally.judgeModels) record.judgeModels = [...tally.judgeModels]
  if (tally.toolFaults) record.toolFaults = tally.toolFaults.list()
  if (tally.toolRepairs > 0) record.toolRepairs = tally.toolRepairs
  if (parts.missing && parts.missing.length > 0) record.missingServers = parts.missing
  if (parts.notes && Object.keys(parts.notes).length > 0) record.info = parts.notes
  return record
}

/** The record of a rollout that never ran, or of which nothing is known: every rollout asked for has an outcome. */
export function recordWithoutRun(
  parts: Pick<RolloutRecord, 'id' | 'environment' | 'model' | 'task' | 'sample' | 'attempt'> & {
    readonly outcome: Outcome
    readonly error: MillraceError
    readonly start?: StartTime
    readonly spent?: AttemptSpending | undefined
  },
): RolloutRecord {
  const { error, start = new StartTime(), spent, ...known } = parts
  return {
    ...known,
    truncated: false,
    error: error.toWire(),
    reward: null,
    rewards: {},
    metrics: {},
    answer: null,
    messages: [],
    turns: 0,
    toolCalls: 0,
    toolErrors: 0,
    children: 0,
    usage: emptyUsage(),
    judgeUsage: emptyUsage(),
    cost: 0,
    ...spent,
    timing: {
      startedAt: start.at,
      wallMs: start.elapsedMs,
      workingMs: 0,
      waitMs: 0,
      modelMs: 0,
      toolMs: 0,
      rewardMs: 0,
    },
  }
}
