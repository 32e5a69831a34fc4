import { MillraceError } from '../../errors/index.ts'
import { deepCopy, withAbort, thrownBy } from '../../kit/index.ts'
import type { Environment, TaskInput, TaskRow, TaskSource } from '../define/define-environment.ts'
import { TaskStream } from './task-stream.ts'

/** Asks an environment for its tasks. Reading starts with the first step of the iteration, not before. */
export async function readTasks(
  environment: Environment,
  options: unknown,
  { limit, signal }: { readonly limit?: number | undefined; readonly signal?: AbortSignal | undefined } = {},
): Promise<TaskStream> {
  const asked = Promise.try(() => environment.tasks(deepCopy(options)))
  try {
    const source = sourceOfInput(await (signal ? withAbort(asked, signal) : asked))
    return new TaskStream(environment, source, limit, signal)
  } catch (error) {
    if (signal?.aborted) throw signal.reason
    if (error instanceof MillraceError && error.code === 'env_invalid') throw error
    throw thrownBy(`\`tasks\` of ${environment.name}`, error, 'tasks_failed')
  }
}

/** Iterators that were used as tasks already: they cannot be read again. */
const handedOut = new WeakSet<object>()

function sourceOfInput(input: TaskInput): TaskSource {
  if (typeof input === 'object' && input !== null) {
    if ('rows' in input && typeof input.rows === 'function') return input
    if (Array.isArray(input)) {
      const { length } = input
      return {
        label: `array of ${length}`,
        rows: () => rowsOf(input),
        total: () => ({ count: length, exact: true }),
      }
    }
    if (Symbol.asyncIterator in input || Symbol.iterator in input) {
      if ('next' in input) requireUnread(input)
      return { label: 'generator', isGenerated: true, rows: () => rowsOf(input) }
    }
  }
  const found = typeof input === 'string' ? `the text ${JSON.stringify(input)}` : describe(input)
  throw new MillraceError(
    'env_invalid',
    `\`tasks\` must return an array, a generator, jsonl(path) or csv(path); it returned ${found}`,
  )
}

/** Tasks may be asked for several times, and a second reader of an iterator would find only the rest. */
function requireUnread(iterator: object): void {
  if (handedOut.has(iterator)) {
    throw new MillraceError(
      'env_invalid',
      '`tasks` returned the same generator again, which can be read only once. Create the generator inside the function, so that each call returns a new one: `tasks: function* () { … }`.',
    )
  }
  handedOut.add(iterator)
}

function describe(input: unknown): string {
  return input === null || input === undefined ? String(input) : `a value of type ${typeof input}`
}

async function* rowsOf(values: Iterable<unknown> | AsyncIterable<unknown>): AsyncGenerator<TaskRow, void, void> {
  let index = 0
  for await (const value of values) {
    yield { at: `tasks[${index}]`, value }
    index += 1
  }
}
