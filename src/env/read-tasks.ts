import { MillraceError } from '../errors/index.ts'
import { ownCopy, raced, thrownBy } from '../kit/index.ts'
import { sourceOfInput } from './_source-of-input.ts'
import type { Environment } from './define-environment.ts'
import { TaskStream } from './task-stream.ts'

/** Asks an environment for its tasks. Reading starts with the first step of the iteration, not before. */
export async function readTasks(
  environment: Environment,
  options: unknown,
  { limit, signal }: { readonly limit?: number | undefined; readonly signal?: AbortSignal | undefined } = {},
): Promise<TaskStream> {
  const asked = Promise.try(() => environment.tasks(ownCopy(options)))
  try {
    const source = sourceOfInput(await (signal ? raced(asked, signal) : asked))
    return new TaskStream({ environment, source, limit, signal })
  } catch (error) {
    if (signal?.aborted) throw signal.reason
    if (error instanceof MillraceError && error.code === 'env_invalid') throw error
    throw thrownBy(`\`tasks\` of ${environment.name}`, error, 'tasks_failed')
  }
}
