import { outcomes, type Json, type MissingServer, type RewardComponent, type RolloutRecord } from '../schema/index.ts'
import type { AgentEnd, AgentRun } from './agent-run.ts'
import type { Engine } from './engine.ts'
import type { RolloutJob } from './job.ts'

/** What a rollout came to, as a plain value. */
export function recordOf(parts: {
  engine: Engine
  job: RolloutJob
  run: AgentRun
  end: AgentEnd
  startedAt: number
  score?: { reward: number; rewards: Record<string, RewardComponent> } | undefined
  metrics?: Record<string, number>
  notes?: Record<string, Json>
  missing?: readonly MissingServer[]
  rewardMs?: number
  /** What it waited before its agent could begin. */
  toolsWaitMs?: number
}): RolloutRecord {
  const { engine, job, run, end, startedAt, score } = parts
  const { tally, budget } = run
  return {
    id: run.id,
    environment: engine.environment.name,
    model: run.model,
    task: { index: job.task.index, id: job.task.id },
    sample: job.sample,
    attempt: job.attempt,
    outcome: end.outcome,
    truncated: outcomes[end.outcome].truncated,
    ...(end.error && !outcomes[end.outcome].truncated && { error: end.error.toWire() }),
    reward: score?.reward ?? null,
    rewards: score?.rewards ?? {},
    metrics: parts.metrics ?? {},
    answer: run.answer,
    turns: run.turns,
    toolCalls: tally.toolCalls,
    toolErrors: tally.toolErrors,
    ...(tally.toolRepairs > 0 && { toolRepairs: tally.toolRepairs }),
    ...(parts.missing && parts.missing.length > 0 && { missingServers: parts.missing }),
    children: tally.children,
    usage: tally.usage,
    judgeUsage: tally.judgeUsage,
    cost: tally.costUsd,
    timing: {
      startedAt,
      wallMs: Date.now() - startedAt,
      workingMs: Math.round(budget.workingMs),
      waitMs: Math.round(budget.waitedMs + (parts.toolsWaitMs ?? 0)),
      modelMs: Math.round(tally.modelMs),
      toolMs: Math.round(tally.toolMs),
      rewardMs: Math.round(parts.rewardMs ?? 0),
    },
    ...(parts.notes && Object.keys(parts.notes).length > 0 && { info: parts.notes }),
    messages: run.messages,
  }
}
