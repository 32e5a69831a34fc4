import type { Environment } from '../env/index.ts'
import { MillraceError } from '../errors/index.ts'
import { earlierSitting, planOne, type EarlierSitting, type RunConfig } from '../eval/index.ts'
import { holdsGroups, recordWithoutRun, type PlannedRollout } from '../rollout/index.ts'
import { isDamage, type Journal, type RunReader, type RunStore } from '../store/index.ts'
import { checkTask, type CheckedTask } from './_check-tasks.ts'
import { readRequests, type JournalledRequest } from './_request-event.ts'
import type { DueRollout } from './_request-plans.ts'
import { rolloutId } from '../schema/index.ts'
import { countOutcome, type KnownRequest } from './known-request.ts'

export interface RecoveredRequest {
  readonly request: KnownRequest
  /** Those of its rollouts that have not ended, from where they were cut off. */
  readonly unfinished: readonly DueRollout[]
}

interface Recovery {
  readonly environment: Environment
  readonly config: RunConfig
  readonly earlier: EarlierSitting
  readonly journal: Journal
  readonly reader: RunReader
}

/** What earlier sittings of a run accepted, request by request; returns the number of the next task. */
export async function* recoverRequests(
  { reader, journal }: Pick<RunStore, 'reader' | 'journal'>,
  parts: Pick<Recovery, 'environment' | 'config'> & { readonly onDetached: (id: string) => void },
): AsyncGenerator<RecoveredRequest, number, void> {
  const recovery: Recovery = { ...parts, journal, reader, earlier: earlierSitting(reader, parts.config.retries) }
  const requests = readRequests(reader, parts.onDetached)
  for (;;) {
    const next = await requests.next()
    if (next.done) return next.value
    yield await recover(next.value, recovery)
  }
}

async function recover(journalled: JournalledRequest, recovery: Recovery): Promise<RecoveredRequest> {
  const { request, problem } = journalled
  const unfinished: DueRollout[] = []
  for (let index = request.firstTask; index < request.firstTask + request.tasks; index += 1) {
    const due: number[] = []
    for (let sample = 0; sample < request.attempts; sample += 1) {
      const outcome = recovery.reader.endedOutcome(rolloutId(index, sample))
      if (outcome === undefined) due.push(sample)
      else countOutcome(request, outcome)
    }
    if (due.length === 0) continue
    const checked = problem ?? (await checkAgain(recovery.environment, () => journalled.task(index)))
    const bytes = checked instanceof MillraceError ? 0 : checked.bytes
    for (const sample of due) {
      const plan = planAgain({ index, sample, checked, sampling: journalled.sampling }, recovery)
      unfinished.push({ plan, bytes })
    }
  }
  return { request, unfinished }
}

/** It was valid when it was accepted: if it is not, the environment has changed. */
async function checkAgain(environment: Environment, read: () => unknown): Promise<CheckedTask | MillraceError> {
  let task: unknown
  try {
    task = read()
  } catch (error) {
    // It ends what is left of this task alone.
    if (isDamage(error)) return error
    throw error
  }
  const checked = await checkTask(environment, task, Number.POSITIVE_INFINITY)
  if (typeof checked !== 'string') return checked
  return new MillraceError('task_invalid', `the task does not fit the environment any more: ${checked}`)
}

function planAgain(
  due: {
    readonly index: number
    readonly sample: number
    readonly checked: CheckedTask | MillraceError
    readonly sampling: JournalledRequest['sampling']
  },
  { config, earlier, journal }: Recovery,
): PlannedRollout {
  const { index, sample, checked, sampling } = due
  const id = rolloutId(index, sample)
  const unfinished = earlier.unfinished(id)
  if (checked instanceof MillraceError) {
    const labels = { environment: config.environment.name, model: config.model }
    const task = { index, id: String(index) }
    // What an earlier sitting has of it is another attempt, and stays in the journal with what it cost.
    const attempt = (unfinished?.attempt ?? 0) + 1
    const record = recordWithoutRun({ ...labels, id, task, sample, attempt, outcome: 'env_error', error: checked })
    return { kind: 'settled', record }
  }
  const { name, digest, value } = checked
  const plan = planOne({
    id,
    sample,
    item: { index, id: name ?? String(index), digest, task: value },
    unfinished,
    isHoldingGroups: holdsGroups(config.group),
    journal,
  })
  return plan.kind !== 'settled' && sampling ? { ...plan, sampling } : plan
}
