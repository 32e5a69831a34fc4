import { spawn, type ChildProcess } from 'node:child_process'
import { Socket } from 'node:net'
import { guardScript } from './_guard-script.ts'

/** One life of the guard's shell. It never keeps our event loop alive, except while we wait for its end. */
export class GuardShell {
  readonly #child: ChildProcess
  readonly #startedAt = performance.now()
  /** Resolves when the shell has ended, or could not be started. */
  readonly gone: Promise<void>

  constructor(mark: string) {
    // A session of its own, so that Ctrl-C in our terminal does not reach it. It gets none of our secrets, and holds no folder.
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
    // A write to a dead shell already fails in `tell`; the event says the same again.
    child.stdin?.on('error', () => {})
    child.unref()
    if (child.stdin instanceof Socket) child.stdin.unref()
  }

  get ageMs(): number {
    return performance.now() - this.#startedAt
  }

  /** Resolves to whether the line was handed over. A line in the pipe will be read, even if we are dead by then. */
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
