import type { Environment } from './define-environment.ts'

/** What the environment calls a task: nothing if it has no word for it, which in a file is often null. */
export function taskName(environment: Environment, task: unknown): string | undefined {
  const name = environment.taskId?.(task) ?? undefined
  return name === undefined ? undefined : String(name)
}
