import type { ErrorCode, MillraceError } from '../../errors/index.ts'
import type { Outcome } from '../../schema/index.ts'
import { storedMessage } from './conversations.ts'
import { decoded, isDamage } from './damage.ts'
import { type BareRecord, type RolloutFacts, storedRecord, type StoredText } from './stored-run.ts'

interface StoredLineOptions {
  readonly tasks: TaskNames
  readonly extra?: ((stored: StoredText, record: BareRecord) => string) | undefined
  readonly onDamaged?: ((rollout: string, error: MillraceError) => void) | undefined
}

/** The line of a stored result, or a line of kind `damaged` if it cannot be read, so that the export goes on. */
export function storedLine(stored: StoredText, options: StoredLineOptions): string {
  try {
    return wholeLine(stored, options.extra)
  } catch (error) {
    if (!isDamage(error)) throw error
    options.onDamaged?.(stored.rollout, error)
    return `${JSON.stringify(damagedRollout(options.tasks, stored, error))}\n`
  }
}

/** Texts are passed on as they are, so they are checked first: a text that is no record would spoil the line. */
function wholeLine(stored: StoredText, extra: StoredLineOptions['extra']): string {
  const { rollout, text } = stored
  const { record, messages } = text
  const checked = storedRecord(rollout, record)
  decoded(`a message of ${rollout}`, () => messages.forEach(storedMessage))
  return rolloutLine(record, messages, extra?.(stored, checked))
}

/** A line of `rollouts.jsonl`: the record with its messages put in. All texts are JSON already. */
export function rolloutLine(record: string, messages: readonly string[], extra = ''): string {
  const open = record.slice(0, record.lastIndexOf('}'))
  const comma = open.trimEnd().endsWith('{') ? '' : ','
  return `${open}${comma}"messages":[${messages.join(',')}]${extra}}\n`
}

/** Takes the place of a rollout that cannot be read. The other rollouts are not affected. */
export interface DamagedRollout {
  readonly kind: 'damaged'
  readonly id: string
  readonly task: { readonly index: number; readonly id: string | null }
  readonly sample: number
  readonly attempt: number
  readonly outcome: Outcome
  /** Always null: a consumer that filters for rollouts with a reward expects their other fields, too. */
  readonly reward: null
  readonly error: { readonly code: ErrorCode; readonly message: string }
}

/** A `RunReader`, or something else that knows the tasks of a run. */
export interface TaskNames {
  task(index: number): { readonly id: string } | undefined
}

export function damagedRollout(tasks: TaskNames, facts: RolloutFacts, error: MillraceError): DamagedRollout {
  const { rollout: id, task: index, sample, attempt, outcome } = facts
  return {
    kind: 'damaged',
    id,
    task: { index, id: tasks.task(index)?.id ?? null },
    sample,
    attempt,
    outcome,
    reward: null,
    error: { code: error.code, message: error.rawMessage },
  }
}
