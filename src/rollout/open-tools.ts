import { MillraceError } from '../errors/index.ts'
import { AbortScope } from '../kit/index.ts'
import type { MissingServer, RolloutRecord } from '../schema/index.ts'
import type { StartTime } from './attempt-start.ts'
import { spent } from './budget-meter.ts'
import type { RunServices } from './run-services.ts'
import { failedEnd } from './failed-end.ts'
import type { RolloutJob } from './job.ts'
import { recordWithoutRun } from './record-without-run.ts'
import { rolloutEvents, traceOf } from './rollout-events.ts'
import type { RolloutTools } from './toolkit.ts'
import { recordedSpending } from './unrepeated-work.ts'

/**
 * The tools of a rollout, once its servers are there. The wait for servers does not count as the agent's time, but the wall clock
 * goes on.
 */
export async function openTools(job: RolloutJob, services: RunServices, signal: AbortSignal): Promise<RolloutTools> {
  const { wallTimeoutMs, tailMs } = services.settings.limits
  const why = (): MillraceError => spent('wall', 'its time on the clock was used up before its tool servers were there')
  using scope = new AbortScope(signal, Math.max(0, wallTimeoutMs - tailMs), why)
  return await services.toolkit.lease(job, scope.signal)
}

/** A cause is often a process's last output; the journal has it whole (`mcp.missing`). */
const maxCauseChars = 500

/** The servers that a rollout has to do without, for its record. */
export function missingServers({ failures }: RolloutTools): MissingServer[] {
  return failures.map(({ server, error }) => ({ server, cause: error.rawMessage.slice(0, maxCauseChars) }))
}

/** The record of a rollout whose tools could not be opened. */
export function recordWithoutTools(
  job: RolloutJob,
  { environment, settings }: RunServices,
  { thrown, start, signal }: { thrown: unknown; start: StartTime; signal: AbortSignal },
): RolloutRecord {
  const trace = traceOf(job)
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
    spent: recordedSpending(job.recorded),
  })
  // The rollout did nothing but wait for its tools.
  const record = { ...ended, timing: { ...ended.timing, waitMs: ended.timing.wallMs } }
  if (rolloutEvents.hasSubscribers) rolloutEvents.publish({ kind: 'end', record, isChild: false, trace })
  return record
}
