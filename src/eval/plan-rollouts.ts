import type { InvalidTask, TaskItem, ValidTask } from '../env/index.ts'
import { TimeSlice } from '../kit/index.ts'
import { attemptAbandoned, recordWithoutRun, totalReward, type PlannedRollout } from '../rollout/index.ts'
import { outcomes, rolloutId, type RolloutRecord } from '../schema/index.ts'
import { isDamage, type Journal } from '../store/index.ts'
import type { EarlierSitting, UnfinishedWork } from './earlier-sitting.ts'
import type { RunConfig } from './run-config.ts'
import { isNewTask, requireNoMore } from './same-tasks.ts'

/**
 * The rollouts that are due, task by task as the source is read: nothing is held. Ended rollouts are left out; rollouts that were
 * cut off go on from their journal.
 */
export async function* planRollouts(options: {
  tasks: AsyncIterable<TaskItem>
  config: RunConfig
  journal: Journal
  onTask: (task: TaskItem) => void
  earlier: EarlierSitting | undefined
  isHoldingGroups: boolean
}): AsyncGenerator<PlannedRollout, void, void> {
  const { tasks, config, journal, onTask, earlier, isHoldingGroups } = options
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
        // The work of an earlier sitting is an attempt of its own, with its cost, so this is the next one.
        const attempt = (earlier?.unfinished(id)?.attempt ?? 0) + 1
        yield { kind: 'settled', record: unrunnable({ id, sample, attempt }, item, config) }
      } else {
        yield planOne({ id, sample, item, unfinished: earlier?.unfinished(id), isHoldingGroups, journal })
      }
    }
  }
  requireNoMore(next, config.limit, earlier)
}

/** One rollout of a valid task, from the start or from where an earlier sitting was cut off. */
export function planOne(options: {
  id: string
  sample: number
  item: ValidTask
  unfinished: UnfinishedWork | undefined
  isHoldingGroups: boolean
  journal: Journal
}): PlannedRollout {
  const { id, sample, item, unfinished, isHoldingGroups, journal } = options
  const task = { index: item.index, id: item.id, data: item.task }
  if (!unfinished) return { kind: 'attempt', id, sample, task, attempt: 1 }
  const { attempt } = unfinished
  const tries = unfinished.used()
  const common = { task, ...(tries && { used: tries }) }
  try {
    if (unfinished.state === 'cut-off') {
      return { kind: 'attempt', id, sample, attempt, ...common, recorded: unfinished.recorded() }
    }
    if (unfinished.state === 'held' && isHoldingGroups) {
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

/** A record as it was before its group was judged: the group will be judged again. */
function unvoided(record: RolloutRecord): RolloutRecord {
  if (!outcomes[record.outcome].scored) return record
  const { voided: _voided, ...rest } = record
  return { ...rest, reward: totalReward(record.rewards) }
}

/** The record of a row that is no valid task. */
function unrunnable(
  which: Pick<RolloutRecord, 'id' | 'sample' | 'attempt'>,
  item: InvalidTask,
  config: RunConfig,
): RolloutRecord {
  return recordWithoutRun({
    ...which,
    environment: config.environment.name,
    model: config.model,
    task: { index: item.index, id: item.id },
    outcome: 'env_error',
    error: item.problem,
  })
}
