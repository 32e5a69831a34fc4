import { MillraceError } from '../errors/index.ts'
import type { TaskInput } from './define-environment.ts'
import type { TaskRow, TaskSource } from './task-source.ts'

/** Whatever an environment's `tasks` returned, as a source. */
export function sourceOfInput(input: TaskInput): TaskSource {
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
      return { label: 'generator', rows: () => rowsOf(input) }
    }
  }
  const found = typeof input === 'string' ? `the text ${JSON.stringify(input)}` : describe(input)
  throw new MillraceError(
    'env_invalid',
    `\`tasks\` must return an array, a generator, jsonl(path) or csv(path); it returned ${found}`,
  )
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
