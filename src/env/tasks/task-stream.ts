import { hash } from 'node:crypto'
import { MillraceError } from '../../errors/index.ts'
import { withAbort, thrownBy, settlesWithin } from '../../kit/index.ts'
import { validate, type Validated, type ValidationIssue } from '../../schema/index.ts'
import type { Environment, TaskRow, TaskSource } from '../define/define-environment.ts'

/** A checked task, or an invalid row with its problem. Both count. */
export type TaskItem = ValidTask | InvalidTask

interface AnyTask {
  readonly index: number
  readonly id: string
  /** The digest of the row as it was read: a resumed run compares it. */
  readonly digest: string
  /** The row as it was read, as JSON; absent if it is no JSON. A run keeps it. */
  readonly row?: string | undefined
}

export interface ValidTask extends AnyTask {
  readonly task: unknown
  readonly problem?: undefined
}

export interface InvalidTask extends AnyTask {
  readonly problem: MillraceError
}

/** How long a source may take to tidy up when no more rows are asked for. */
const momentMs = 5_000

/** A file with one line that holds all tasks reads as one task. */
const listHint = " It is a list: if it is the list of tasks, put each task in its own row (a file: jq -c '.[]')."

type ReadRow = Extract<TaskRow, { readonly value: unknown }>

type RowFacts = Pick<AnyTask, 'index' | 'digest' | 'row'>

/** The tasks of an environment in order, each validated once. No row is read ahead, and none is held. */
export class TaskStream implements AsyncIterable<TaskItem> {
  readonly #environment: Environment
  readonly #source: TaskSource
  readonly #limit: number
  readonly #signal: AbortSignal | undefined
  #count = 0
  #hasEnded = false

  constructor(
    environment: Environment,
    source: TaskSource,
    limit: number | undefined,
    signal: AbortSignal | undefined,
  ) {
    this.#environment = environment
    this.#source = source
    this.#limit = limit ?? Number.POSITIVE_INFINITY
    this.#signal = signal
  }

  get label(): string {
    return this.#source.label
  }

  get isGenerated(): boolean {
    return this.#source.isGenerated ?? false
  }

  /** The number of tasks, bounded by the limit; undefined while nothing is known. */
  total(): { count: number; exact: boolean } | undefined {
    if (this.#hasEnded) return { count: this.#count, exact: true }
    const total = this.#source.total?.()
    if (total) return { count: Math.min(total.count, this.#limit), exact: total.exact }
    return this.#limit === Number.POSITIVE_INFINITY ? undefined : { count: this.#limit, exact: false }
  }

  /** Throws `tasks_failed` if the source gave nothing: an empty result would hide a wrong file or filter. */
  requireSome(): void {
    if (!this.#hasEnded || this.#count > 0) return
    const { name } = this.#environment
    throw new MillraceError(
      'tasks_failed',
      `${name} has no tasks: its source (${this.label}) is empty. Check the result of \`tasks\`, and the file it reads.`,
    )
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<TaskItem, void, void> {
    const rows = this.#source.rows()[Symbol.asyncIterator]()
    const signal = this.#signal
    // Whether the source still has to hear that no more rows are asked for.
    let isOpen = true
    try {
      while (this.#count < this.#limit && isOpen) {
        isOpen = false
        const { value: row } = await (signal ? withAbort(rows.next(), signal) : rows.next()).catch((error: unknown) => {
          throw this.#reasonOf(error, rows)
        })
        if (!row) break
        const item = await this.#itemOf(row)
        isOpen = true
        this.#count += 1
        yield item
      }
      this.#hasEnded = true
    } finally {
      if (isOpen) await this.#leave(rows)
    }
  }

  /** Tells a source that no more rows are asked for, so that it can tidy up. It is not waited for beyond `momentMs`. */
  async #leave(rows: AsyncIterator<TaskRow>): Promise<void> {
    const signal = this.#signal
    const left = Promise.try(() => rows.return?.())
    try {
      await settlesWithin(signal ? withAbort(left, signal) : left, momentMs)
    } catch (error) {
      if (!signal?.aborted) throw this.#failure(error)
    }
  }

  #reasonOf(error: unknown, rows: AsyncIterator<TaskRow>): unknown {
    if (!this.#signal?.aborted) return this.#failure(error)
    // Not awaited, because a source that is stuck would never answer.
    Promise.resolve(rows.return?.()).catch(() => {})
    return this.#signal.reason
  }

  #failure(error: unknown): MillraceError {
    if (error instanceof MillraceError && error.code === 'file_not_found') return error
    const what = `reading on after ${this.#count} tasks of ${this.#environment.name} (${this.label})`
    const { rawMessage, data } = thrownBy(what, error, 'tasks_failed')
    return new MillraceError('tasks_failed', rawMessage, { data: { ...data, after: this.#count }, cause: error })
  }

  async #itemOf(row: TaskRow): Promise<TaskItem> {
    const index = this.#count
    if ('problem' in row) return invalid({ index, digest: digestOf(JSON.stringify(row)) }, row.at, row.problem)
    let text: string | undefined
    try {
      // Not all values have a JSON text: undefined has none.
      text = JSON.stringify(row.value) as string | undefined
    } catch (error) {
      const problem = `not JSON: ${MillraceError.from(error, 'internal').rawMessage}`
      return invalid({ index, digest: digestOf(JSON.stringify(row.at)) }, row.at, problem)
    }
    const facts: RowFacts = { index, digest: digestOf(text ?? 'undefined'), row: text }
    return this.#checked(facts, row, await validate(this.#environment.task, row.value))
  }

  #checked(facts: RowFacts, { at, value }: ReadRow, validated: Validated<unknown>): TaskItem {
    if (validated.problem !== undefined) {
      const missing = this.#source.isTable ? missingColumns(value, validated.issues) : undefined
      const what = missing
        ? `${missing} (${validated.problem}). Correct the columns`
        : `${validated.problem}. Correct the row`
      const list = Array.isArray(value) ? listHint : ''
      return invalid(facts, at, `${what}, or the environment's \`task\` schema.${list}`)
    }
    const task = validated.value
    try {
      return { ...facts, id: taskName(this.#environment, task) ?? String(facts.index), task }
    } catch (error) {
      return invalid(facts, at, thrownBy('taskId', error, 'task_invalid').rawMessage)
    }
  }
}

function invalid(facts: RowFacts, at: string, problem: string): InvalidTask {
  return {
    ...facts,
    id: String(facts.index),
    problem: new MillraceError('task_invalid', `${at}: ${problem}`, { data: { at } }),
  }
}

function digestOf(text: string): string {
  return hash('sha256', text, 'hex').slice(0, 32)
}

/** The environment's name for a task; undefined if it gives none, which in a file is often null. */
export function taskName(environment: Environment, task: unknown): string | undefined {
  const name: unknown = environment.taskId?.(task) ?? undefined
  if (name === undefined || typeof name === 'string') return name
  if (typeof name === 'number') return String(name)
  throw new MillraceError('task_invalid', `it must return a text or a number, not a value of type ${typeof name}`)
}

const maxNamed = 12

/** The message for a row that fails because the table lacks a column; undefined if no column is missing. */
function missingColumns(row: unknown, issues: readonly ValidationIssue[]): string | undefined {
  if (typeof row !== 'object' || row === null) return undefined
  const missing = new Set(issues.map(columnOf).filter((name) => name !== undefined && !Object.hasOwn(row, name)))
  if (missing.size === 0) return undefined
  const columns = Object.keys(row).filter((name) => name !== '')
  const delimiter = columns.length === 1 ? /[;\t]/.exec(columns[0] ?? '')?.[0].replace('\t', String.raw`\t`) : undefined
  const hint = delimiter ? `; if this is more than one column, write csv(path, { delimiter: '${delimiter}' })` : ''
  return `there is no ${named([...missing])} among the columns ${named(columns)}${hint}`
}

function columnOf({ path }: ValidationIssue): string | undefined {
  const step = path?.[0]
  const key = typeof step === 'object' ? step.key : step
  return typeof key === 'string' ? key : undefined
}

function named(names: readonly unknown[]): string {
  const shown = names.slice(0, maxNamed).map((name) => JSON.stringify(name))
  return names.length > maxNamed ? `${shown.join(', ')} and ${names.length - maxNamed} more` : shown.join(', ')
}
