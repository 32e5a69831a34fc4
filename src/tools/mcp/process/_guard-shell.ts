import { spawn, type ChildProcess } from 'node:child_process'
import { Socket } from 'node:net'
import { guardScript } from './_guard-script.ts'

/** One life of the guard's shell. It never keeps our event loop alive, except while we wait for its end. */
export class GuardShell {
  readonly #child: ChildProcess
  readonly #startedAt = performance.now()
  /** Resolves when it has ended, or could not be started. */
  readonly gone: Promise<void>

  constructor(mark: string) {
    // A session of its own, so that Ctrl-C in our terminal does not reach it. None of our secrets, and no folder held.
    const child = spawn('/bin/sh', ['-c', guardScript, 'millrace-guard', mark], {
      detached: true,
      stdio: ['pipe', 'ignore', 'ignore'],
      cwd: '/',
      env: { PATH: process.env['PATH'], LC_ALL: 'C' },
    })
    this.#child = child
    this.gone = new Promise((resolve) => {
      child.once('error', () => resolve())
      child.once('exit', () => resolve())
    })
    // Writing to one that died fails in `tell`; the event is the same news once more.
    child.stdin?.on('error', () => {})
    child.unref()
    if (child.stdin instanceof Socket) child.stdin.unref()
  }

  get ageMs(): number {
    return performance.now() - this.#startedAt
  }

  /** Whether the line was handed over. What is in the pipe will be read, also if we are dead by then. */
  tell(line: string): Promise<boolean> {
    const { stdin } = this.#child
    if (!stdin?.writable) return Promise.resolve(false)
    return new Promise((resolve) => {
      stdin.write(line, (error) => resolve(!error))
    })
  }

  async end(): Promise<void> {
    this.#child.ref()
    this.#child.stdin?.end()
    await this.gone
  }
}
