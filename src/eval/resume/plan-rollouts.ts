import { readTasks, type TaskItem, type ValidTask } from '../../env/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { TimeSlice } from '../../kit/index.ts'
import { attemptAbandoned, type PlannedRollout, recordWithoutRun, totalReward } from '../../rollout/index.ts'
import { outcomes, rolloutId, type RolloutRecord } from '../../schema/index.ts'
import { isDamage, type Journal, type RunReader } from '../../store/index.ts'
import type { ResolvedRun } from '../resolve-run.ts'
import type { RunConfig } from '../run-config.ts'
import { newRunOption } from './code-change.ts'
import { type EarlierLaunch, earlierLaunch, type UnfinishedWork } from './unfinished-work.ts'

/** The rollouts that are due, as the source is read. Those that were cut off go on from their journal. */
export async function* planRollouts(options: {
  tasks: AsyncIterable<TaskItem>
  config: RunConfig
  journal: Journal
  onTask: (task: TaskItem) => void
  earlier: EarlierLaunch | undefined
  isWaitingForGroups: boolean
}): AsyncGenerator<PlannedRollout, void, void> {
  const { tasks, config, journal, onTask, earlier, isWaitingForGroups } = options
  const slice = new TimeSlice()
  let next = 0
  for await (const item of tasks) {
    next = item.index + 1
    onTask(item)
    if (isNewTask(item, config.attempts, earlier)) {
      const { index, id, digest, row } = item
      journal.append({ kind: 'task', index, id, digest, row })
    }
    for (let sample = 0; sample < config.attempts; sample += 1) {
      const id = rolloutId(item.index, sample)
      if (earlier?.hasEnded(id)) {
        // A long run passes over many ended rollouts, without anything to wait for on the way.
        if (slice.isOver) await slice.rest()
        continue
      }
      if (item.problem) {
        // The work of an earlier launch is an attempt of its own, with its cost, so this is the next one.
        const attempt = (earlier?.unfinished(id)?.attempt ?? 0) + 1
        const record = recordWithoutRun({
          id,
          sample,
          attempt,
          environment: config.environment.name,
          model: config.model,
          task: { index: item.index, id: item.id },
          outcome: 'env_error',
          error: item.problem,
        })
        yield { kind: 'settled', record }
      } else {
        yield planOne({ id, sample, item, unfinished: earlier?.unfinished(id), isWaitingForGroups, journal })
      }
    }
  }
  requireNoMore(next, config.limit, earlier)
}

export function planOne(options: {
  id: string
  sample: number
  item: ValidTask
  unfinished: UnfinishedWork | undefined
  isWaitingForGroups: boolean
  journal: Journal
}): PlannedRollout {
  const { id, sample, item, unfinished, isWaitingForGroups, journal } = options
  const task = { index: item.index, id: item.id, data: item.task }
  if (!unfinished) return { kind: 'attempt', id, sample, task, attempt: 1 }
  const { attempt } = unfinished
  const tries = unfinished.used()
  const common = { task, ...(tries && { used: tries }) }
  try {
    if (unfinished.state === 'cut-off') {
      return { kind: 'attempt', id, sample, attempt, ...common, resumed: unfinished.recording() }
    }
    if (unfinished.state === 'held' && isWaitingForGroups) {
      const held = unfinished.held()
      return { kind: 'held', ...common, held: { ...held, record: unvoided(held.record) } }
    }
  } catch (error) {
    if (!isDamage(error)) throw error
    // A rollout cannot go on from a damaged recording: it starts over. Other rollouts are not affected.
    journal.append(attemptAbandoned({ id, attempt }, error.rawMessage))
  }
  return { kind: 'attempt', id, sample, attempt: attempt + 1, ...common }
}

function unvoided(record: RolloutRecord): RolloutRecord {
  if (!outcomes[record.outcome].scored) return record
  const { voided: _voided, ...rest } = record
  return { ...rest, reward: totalReward(record.rewards) }
}

/** Whether the run has not begun with this task. Throws `run_mismatch` if it has, and the task has changed since. */
function isNewTask(item: TaskItem, attempts: number, earlier: EarlierLaunch | undefined): boolean {
  const known = earlier?.taskDigest(item.index)
  if (known === item.digest) return false
  if (known === undefined || hasNoResults(item.index, attempts, earlier)) return true
  throw new MillraceError(
    'run_mismatch',
    `task ${item.index} (${item.id}) has changed since this run began. Restore the tasks, or start a new run with ${newRunOption}.`,
    { data: { task: item.index } },
  )
}

function requireNoMore(count: number, limit: number | null, earlier: EarlierLaunch | undefined): void {
  if (count === limit || earlier?.taskDigest(count) === undefined) return
  throw new MillraceError(
    'run_mismatch',
    `the source of tasks ends after ${count}, but this run began with more tasks. Restore the tasks, do only these with --limit ${count} (limit), or start a new run with ${newRunOption}.`,
    { data: { task: count } },
  )
}

/** Called before results are taken back: if the run then could not go on, they would be missing. */
export async function requireSameTasks(
  reader: RunReader,
  { config, loaded }: ResolvedRun,
  signal: AbortSignal,
): Promise<void> {
  const { attempts, limit, retries } = config
  const earlier: EarlierLaunch = {
    ...earlierLaunch(reader, retries),
    hasEnded: (id) => isKept(reader, id),
  }
  const slice = new TimeSlice()
  let count = 0
  for await (const item of await readTasks(loaded.environment, loaded.options, { limit: limit ?? undefined, signal })) {
    // Tasks are begun in order: those after a new one are new, too.
    if (earlier.taskDigest(item.index) === undefined) return
    isNewTask(item, attempts, earlier)
    count = item.index + 1
    // A source in memory never waits, so yield to the event loop.
    if (slice.isOver) await slice.rest()
  }
  requireNoMore(count, limit, earlier)
}

/** Whether a rollout has a result that is kept, or that is taken back only to be scored again from its journal. */
function isKept(reader: RunReader, id: string): boolean {
  const outcome = reader.rollout(id)?.outcome
  return outcome !== undefined && (outcomes[outcome].scored || outcomes[outcome].rule === 'rescore')
}

/** A changed task of which nothing counts is taken as new: a row that was no task, say, and was corrected. */
function hasNoResults(index: number, attempts: number, earlier: EarlierLaunch | undefined): boolean {
  for (let sample = 0; sample < attempts; sample += 1) {
    const id = rolloutId(index, sample)
    if (earlier?.hasEnded(id)) return false
    const unfinished = earlier?.unfinished(id)
    if (unfinished && unfinished.state !== 'discarded') return false
  }
  return true
}
