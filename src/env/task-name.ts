import { MillraceError } from '../errors/index.ts'
import type { Environment } from './define-environment.ts'

/** The environment's name for a task; undefined if it gives none, which in a file is often null. */
export function taskName(environment: Environment, task: unknown): string | undefined {
  const name: unknown = environment.taskId?.(task) ?? undefined
  if (name === undefined || typeof name === 'string') return name
  if (typeof name === 'number') return String(name)
  throw new MillraceError('task_invalid', `it must return a text or a number, not a value of type ${typeof name}`)
}
