import { MillraceError } from '../../errors/index.ts'
import { readStoredConfig, type Summary } from '../../eval/index.ts'
import type { FoundRun, RunReader } from '../../store/index.ts'
import { formatQuantity } from '../terminal/format.ts'
import type { CommandIo } from '../terminal/io.ts'
import type { Output } from '../terminal/output.ts'
import { runReference } from './stored-run.ts'

const shownRollouts = 8

/**
 * Finds a rollout by its own name, `<number of the task>-<attempt>`, by `<id of the task>-<attempt>`, or by the number or the
 * id of a task that has only one. An id may look like a number: the number is taken, and a notice names what the id would be.
 */
export function findRollout(
  given: string,
  reader: RunReader,
  { found: { name }, stderr }: { readonly found: FoundRun; readonly stderr: Output },
): string {
  const [byNumber, byId] = [rolloutsByNumber(given, reader), rolloutsById(given, reader)]
  const taken = byNumber.length > 0 ? byNumber : byId
  const [only, ...others] = taken
  if (only === undefined) throw noRollout(given, reader, name)
  const isBoth = taken === byNumber && byId.some((rollout) => !byNumber.includes(rollout))
  const notice = `${given} is read as the number of a task, counted from 0; as the id of a task it would be ${listed(byId)}`
  if (others.length > 0) {
    const also = isBoth ? ` (${notice})` : ''
    throw new MillraceError(
      'run_not_found',
      `${given} matches several rollouts of run ${name}; name one: ${listed(taken)}${also}`,
    )
  }
  if (isBoth) void stderr.line(notice)
  return only
}

function rolloutsByNumber(given: string, reader: RunReader): string[] {
  if (reader.attempts(given).length > 0) return [given]
  return /^\d+$/.test(given) ? reader.rolloutsOf(Number(given), shownRollouts + 1) : []
}

function rolloutsById(given: string, reader: RunReader): string[] {
  const [, id = '', sample = ''] = /^(.*)-(\d+)$/s.exec(given) ?? []
  const samples = reader.tasksWithId(id).map((task) => `${task}-${sample}`)
  const begun = samples.filter((rollout) => reader.attempts(rollout).length > 0)
  if (begun.length > 0) return begun
  return reader.tasksWithId(given).flatMap((task) => reader.rolloutsOf(task, shownRollouts + 1))
}

function listed(rollouts: readonly string[]): string {
  return rollouts.slice(0, shownRollouts).join(', ') + (rollouts.length > shownRollouts ? ', …' : '')
}

function noRollout(given: string, reader: RunReader, run: string): MillraceError {
  const [first] = reader.ended().map(({ rollout }) => rollout)
  const names = /^\d+-\d+/.test(given) ? '' : 'rollouts are named <number of the task>-<attempt>, and '
  const hint = first === undefined ? 'no rollout has ended yet' : `${names}the first that ended is ${first}`
  return new MillraceError('run_not_found', `run ${run} has no rollout ${given}; ${hint}`)
}

/** Finds a rollout that is to run again. A run that has none that could says so, whatever the name. */
export function findRolloutToRepeat(...[given, reader, place]: Parameters<typeof findRollout>): string {
  readStoredConfig(reader)
  return findRollout(given, reader, place)
}

export function nameUnreadable(
  { unreadable }: Pick<Summary, 'unreadable'>,
  { found, io, tells }: { readonly found: FoundRun; readonly io: CommandIo; readonly tells: 'show' | 'replay' },
): void {
  if (!unreadable) return
  const { rollouts, ids } = unreadable
  const more = rollouts > ids.length ? ` and ${formatQuantity(rollouts - ids.length, 'other')}` : ''
  const why = `${io.program} ${tells} ${runReference(found.folder, io)} ${ids[0]}`
  const which = rollouts === 1 ? 'it' : 'they'
  void io.stderr.line(`left out, because ${which} cannot be read: ${ids.join(', ')}${more}; why:  ${why}`)
}
