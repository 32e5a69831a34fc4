import { createContext, Script } from 'node:vm'

/** Where the script finds its task. */
const scope: { task: (() => void) | undefined } = { task: undefined }
const context = createContext(scope)
const script = new Script('task()')

/** Runs foreign code that may never end; undefined if it took longer. It is stopped anywhere: it must only touch its own data. */
export function runWithTimeout<Value>(timeoutMs: number, task: () => Value): Value | undefined {
  let value: Value | undefined
  scope.task = () => {
    value = task()
  }
  try {
    script.runInContext(context, { timeout: timeoutMs })
    return value
  } catch (error) {
    if (isTimeout(error)) return undefined
    throw error
  } finally {
    scope.task = undefined
  }
}

function isTimeout(error: unknown): boolean {
  // The error is not an instance of our `Error`, as it was made in the context.
  return typeof error === 'object' && error !== null && 'code' in error && error.code === 'ERR_SCRIPT_EXECUTION_TIMEOUT'
}
