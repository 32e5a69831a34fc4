import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface, type Interface } from 'node:readline'

export interface Child extends AsyncDisposable {
  readonly process: ChildProcess
  readonly lines: Interface
  readonly errors: () => string
  /** SIGKILL, and the wait for the end. */
  kill(): Promise<void>
}

/** A script in a process of its own. */
export function startChild(script: URL, args: readonly string[]): Child {
  const child = spawn(process.execPath, ['--no-warnings', script.pathname, ...args], {
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let errors = ''
  child.stderr.setEncoding('utf8').on('data', (text: string) => (errors += text))
  const ended = once(child, 'close')
  const kill = async (): Promise<void> => {
    child.kill('SIGKILL')
    await ended
  }
  return {
    process: child,
    lines: createInterface({ input: child.stdout }),
    errors: () => errors,
    kill,
    [Symbol.asyncDispose]: kill,
  }
}
