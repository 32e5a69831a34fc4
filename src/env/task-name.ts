import type { Environment } from './define-environment.ts'

/**
 * What the environment calls a task. Ids in a file are often numbers, or null, and nobody checks the types of an
 * environment.
 */
export function taskName(environment: Environment, task: unknown): string | undefined {
  const name = environment.taskId?.(task) ?? undefined
  return name === undefined ? undefined : String(name)
}
