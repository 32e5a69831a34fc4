import { spawn, type ChildProcess } from 'node:child_process'
import { Socket } from 'node:net'
import { LineSplitter } from '../../../kit/index.ts'
import { guardScript } from './_guard-script.ts'

/** A line of an answer holds a process id. */
const maxLineBytes = 32
/** The line after the last of an answer. */
const endOfAnswer = '.'

/** One life of the guard's shell. It keeps our event loop alive only while we wait for its end, or for an answer. */
export class GuardShell {
  readonly #child: ChildProcess
  readonly #startedAt = performance.now()
  /** Resolves when the shell has ended, or could not be started. */
  readonly gone: Promise<void>
  /** Takes the lines of the answer that is awaited. */
  #answer: ((line: string | undefined) => void) | undefined

  constructor(mark: string) {
    // A session of its own, so that Ctrl-C in our terminal does not reach it. It gets none of our secrets, and holds no folder.
    const child = spawn('/bin/sh', ['-c', guardScript, 'millrace-guard', mark], {
      detached: true,
      stdio: ['pipe', 'pipe', 'ignore'],
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
    const lines = new LineSplitter(maxLineBytes)
    child.stdout?.on('data', (chunk: Buffer) => {
      for (const line of lines.push(chunk)) this.#answer?.(line)
    })
    this.#refAnswers(false)
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

  /**
   * The processes with one of these in their environment, as the shell finds them; undefined if the shell is gone. One question
   * at a time.
   */
  async find(marks: readonly string[]): Promise<number[] | undefined> {
    const found: number[] = []
    const answered = new Promise<number[]>((resolve) => {
      this.#answer = (line) => {
        if (line === endOfAnswer) resolve(found)
        else found.push(Number(line))
      }
    })
    this.#refAnswers(true)
    try {
      if (!(await this.tell(`?${marks.join(' ')}\n`))) return undefined
      return await Promise.race([answered, this.gone.then(() => undefined)])
    } finally {
      this.#answer = undefined
      this.#refAnswers(false)
    }
  }

  #refAnswers(isAwaited: boolean): void {
    const { stdout } = this.#child
    if (!(stdout instanceof Socket)) return
    if (isAwaited) stdout.ref()
    else stdout.unref()
  }

  async end(): Promise<void> {
    this.#child.ref()
    this.#child.stdin?.end()
    await this.gone
  }
}
