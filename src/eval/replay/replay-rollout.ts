import type { Environment } from '../../env/index.ts'
import type { Outcome } from '../../schema/index.ts'
import { isDamage, type RunReader } from '../../store/index.ts'
import { requireKnownOptions, type KnownOptions } from '../known-options.ts'
import { readRecording, type Recording } from './recording.ts'
import type { ReplayReport } from './replay-report.ts'
import { Replayer } from './_replayer.ts'
import { skippedReport, unreadableReport } from './_report-of-replay.ts'
import { readStoredConfig } from './stored-config.ts'
import { knownTask, knownTasks, type KnownTask, type TasksOfRun } from './stored-tasks.ts'

export interface ReplayOptions {
  /** Replaces the environment that made the run: a module, or an environment itself. */
  readonly environment?: string | Environment
  /** Options of the environment that differ from the run's, or were not kept with it. */
  readonly options?: Readonly<Record<string, unknown>>
  readonly signal?: AbortSignal
}

const knownReplayOptions = {
  environment: 'any',
  options: 'object',
  signal: 'signal',
} as const satisfies KnownOptions & Record<keyof ReplayOptions, unknown>

/**
 * Runs a stored rollout again, against nothing but its own recording: its agent, updates, children and rewards, with no model, no
 * judge and no tool but those that rebuild the rollout's state. Reports what differs.
 */
export async function replayRollout(
  reader: RunReader,
  rollout: string,
  options: ReplayOptions = {},
): Promise<ReplayReport> {
  requireKnownOptions(options, 'replayRollout()', knownReplayOptions)
  const config = readStoredConfig(reader)
  const recording = readRecording(reader, rollout)
  const why = whyNot(recording)
  if (why !== undefined) return skippedReport(recording.record, why)
  await using replayer = await Replayer.open(reader, config, options)
  const task = await knownTask(tasksOf(reader, replayer, options), recording.record.task.index)
  return await replayer.replay(recording, task)
}

/** Replays every ended rollout of a run, task by task, one at a time. A damaged rollout does not end the replay. */
export async function* replayRun(
  reader: RunReader,
  options: ReplayOptions = {},
): AsyncGenerator<ReplayReport, void, void> {
  requireKnownOptions(options, 'replayRun()', knownReplayOptions)
  await using replayer = await Replayer.open(reader, readStoredConfig(reader), options)
  for await (const task of knownTasks(tasksOf(reader, replayer, options))) {
    for (const id of reader.rolloutsOf(task.index)) {
      if (reader.hasEnded(id)) yield await replayOrDamage(reader, id, { replayer, task })
    }
  }
}

function tasksOf(reader: RunReader, { config, loaded }: Replayer, { signal }: ReplayOptions): TasksOfRun {
  return { reader, config, loaded, signal }
}

async function replayOrDamage(
  reader: RunReader,
  rollout: string,
  { replayer, task }: { readonly replayer: Replayer; readonly task: KnownTask },
): Promise<ReplayReport> {
  try {
    const recording = readRecording(reader, rollout)
    const why = whyNot(recording)
    if (why !== undefined) return skippedReport(recording.record, why)
    if (task.problem !== undefined) return skippedReport(recording.record, task.problem)
    return await replayer.replay(recording, task.item)
  } catch (error) {
    if (!isDamage(error)) throw error
    const attempt = reader.attempts(rollout).findLast(({ discarded }) => !discarded)?.attempt ?? 0
    return unreadableReport(rollout, attempt, error.rawMessage)
  }
}

/** Outcomes of rollouts that were lost before they could end: there is no end to repeat. */
const lostEnds: ReadonlySet<Outcome> = new Set<Outcome>(['worker_lost', 'poisoned', 'stale'])

/** Why a rollout cannot be replayed; undefined if it can. */
function whyNot({ record, sessions }: Recording): string | undefined {
  // Nothing ran then, even if the row is a valid task now.
  if (record.error?.code === 'task_invalid') {
    return `nothing ran: it was not a valid task when the run was made (${record.error.message})`
  }
  if (lostEnds.has(record.outcome)) return `it ended as ${record.outcome}: its own end is not known`
  if (sessions[0]?.nodes.length === 0 && record.outcome !== 'env_error') {
    return `it ended as ${record.outcome} before anything was said`
  }
  return undefined
}
