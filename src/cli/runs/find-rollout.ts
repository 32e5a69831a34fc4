import { MillraceError } from '../../errors/index.ts'
import type { FoundRun, RunReader } from '../../store/index.ts'

/** How many rollouts are searched for a task: a run may hold a million. */
const maxLookedThrough = 10_000
const shownRollouts = 8

/** Finds a rollout by its id, by its task's id and attempt, or by the index or id of its task if that has only one rollout. */
export function findRollout(given: string, reader: RunReader, { name }: FoundRun): string {
  if (reader.attempts(given).length > 0) return given
  const found: string[] = []
  let first: string | undefined
  let count = 0
  for (const { rollout, task, sample } of reader.ended()) {
    first ??= rollout
    const id = reader.task(task)?.id
    // In a damaged run, the task may be missing.
    if (id !== undefined && given === `${id}-${sample}`) return rollout
    if (given === String(task) || given === id) found.push(rollout)
    count += 1
    if (count === maxLookedThrough || found.length > shownRollouts) break
  }
  const [only, ...others] = found
  if (only !== undefined && others.length === 0) return only
  if (only !== undefined) {
    const shown = found.slice(0, shownRollouts).join(', ') + (found.length > shownRollouts ? ', …' : '')
    throw new MillraceError('run_not_found', `task ${given} of run ${name} has several rollouts; name one: ${shown}`)
  }
  const names = /^\d+-\d+/.test(given) ? '' : 'rollouts are named <number of the task>-<attempt>, and '
  const hint = first === undefined ? 'none has ended yet' : `${names}the first that ended is ${first}`
  throw new MillraceError('run_not_found', `run ${name} has no rollout ${given}; ${hint}`)
}
