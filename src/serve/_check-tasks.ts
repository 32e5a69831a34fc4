import { hash } from 'node:crypto'
import { taskName, type Environment } from '../env/index.ts'
import { MillraceError } from '../errors/index.ts'
import { TimeSlice, thrownBy } from '../kit/index.ts'
import { validate, type Validated } from '../tools/index.ts'
import { JsonText } from './rollout-request.ts'

/** A task that fits the environment's schema. */
export interface CheckedTask {
  /** As it came: what the journal keeps. */
  readonly text: string
  /** Of the text, as it is sent and stored. */
  readonly bytes: number
  readonly digest: string
  /** As the schema made it. */
  readonly value: unknown
  /** What the environment calls it. */
  readonly name: string | undefined
}

export interface CheckedTasks {
  readonly tasks: readonly CheckedTask[]
  /** Of all tasks together, and of `salt`. */
  readonly digest: string
  readonly bytes: number
}

const maxProblems = 5

/** Parses and validates a request's tasks; fails with the rows that do not fit. */
export async function checkTasks(options: {
  readonly environment: Environment
  readonly tasks: readonly unknown[]
  readonly maxTaskBytes: number
  readonly salt: string
}): Promise<CheckedTasks> {
  const { environment, tasks, maxTaskBytes, salt } = options
  const digests: string[] = [salt]
  const checked: CheckedTask[] = []
  const problems: { row: number; problem: string }[] = []
  let bytes = 0
  const slice = new TimeSlice()
  for (const [row, task] of tasks.entries()) {
    const checking = checkTask(environment, task, maxTaskBytes)
    const result = checking instanceof Promise ? await checking : checking
    if (typeof result === 'string') {
      problems.push({ row, problem: result })
      if (problems.length === maxProblems) break
    } else {
      digests.push(result.digest)
      bytes += result.bytes
      checked.push(result)
    }
    if (slice.isOver) await slice.rest()
  }
  const [first] = problems
  if (first) {
    // A task that is alone was most likely sent as `task`.
    const nameOf = (row: number): string => (tasks.length === 1 ? 'task' : `tasks[${row}]`)
    const text = problems.map(({ row, problem }) => `${nameOf(row)}: ${problem}`).join('; ')
    throw new MillraceError('task_invalid', text, { data: { row: first.row } })
  }
  return { tasks: checked, digest: digestOf(digests.join('\n')), bytes }
}

/** The task, or what is wrong with it. A promise only where the environment's schema is asynchronous. */
export function checkTask(
  environment: Environment,
  task: unknown,
  maxBytes: number,
): CheckedTask | string | Promise<CheckedTask | string> {
  let text: string | undefined
  let bytes = 0
  let raw: unknown
  try {
    text = task instanceof JsonText ? task.text : JSON.stringify(task)
    bytes = Buffer.byteLength(text ?? '')
    if (bytes > maxBytes) return `has ${bytes} bytes, and a task has at most ${maxBytes}`
    raw = task instanceof JsonText ? JSON.parse(task.text) : task
  } catch (error) {
    return `not JSON: ${MillraceError.from(error, 'internal').rawMessage}`
  }
  if (text === undefined) return 'not JSON'
  const validating = validate(environment.task, raw)
  const json = { text, bytes }
  return validating instanceof Promise
    ? validating.then((validated) => checkedTask(environment, json, validated))
    : checkedTask(environment, json, validating)
}

function checkedTask(
  environment: Environment,
  { text, bytes }: Pick<CheckedTask, 'text' | 'bytes'>,
  validated: Validated<unknown>,
): CheckedTask | string {
  if (validated.problem !== undefined) return validated.problem
  const { value } = validated
  try {
    return { text, bytes, digest: digestOf(text), value, name: taskName(environment, value) }
  } catch (error) {
    return thrownBy('taskId', error, 'task_invalid').rawMessage
  }
}

function digestOf(text: string): string {
  return hash('sha256', text, 'hex').slice(0, 32)
}
