import { spawn, type ChildProcess } from 'node:child_process'
import { MillraceError } from '../errors/index.ts'
import { maxTimerMs } from '../kit/index.ts'
import { ProcessGuard } from '../tools/index.ts'

const maxOutputBytes = 1024 * 1024
const keptErrorChars = 2_000
/** For pipes to end when the program has. One that left its group may hold them open, and has nothing to say here. */
const pipeLimitMs = 1_000

export interface Command {
  readonly file: string
  readonly args: readonly string[]
  readonly cwd: string | undefined
  readonly env: Readonly<Record<string, string>>
  readonly input: string
  readonly timeoutMs: number
  readonly signal: AbortSignal
}

/**
 * Runs a program without a shell and resolves with what it printed. It leads a process group of its own, and the group is
 * killed in any case: at the time limit, on abort, when the program itself is done but left something running, and when we
 * are gone ourselves.
 */
export function runCommand(command: Command): Promise<string> {
  const { file, signal } = command
  if (signal.aborted) return Promise.reject(signal.reason)
  return new Promise((resolve, reject) => {
    const child = spawn(file, command.args, { cwd: command.cwd, env: command.env, detached: true, stdio: 'pipe' })
    const output: Buffer[] = []
    let outputBytes = 0
    let errorText = ''
    let isOver = false
    let lingering: NodeJS.Timeout | undefined
    const end = (settle: () => void): void => {
      if (isOver) return
      isOver = true
      clearTimeout(timer)
      clearTimeout(lingering)
      signal.removeEventListener('abort', onAbort)
      if (child.exitCode === null && child.signalCode === null) killGroup(child)
      // A process that left the group could hold the pipes open for ever.
      if (child.pid !== undefined) for (const pipe of child.stdio) pipe?.destroy()
      settle()
    }
    const fail = (what: string, cause?: unknown): void => {
      const said = errorText.trim() === '' ? '' : `; its last words were: ${errorText.trim()}`
      end(() => reject(new MillraceError('reward_failed', `${file} ${what}${said}`, { cause })))
    }
    const onAbort = (): void => end(() => reject(signal.reason))
    signal.addEventListener('abort', onAbort)
    const timer = setTimeout(
      () => fail(`took longer than ${command.timeoutMs / 1_000} s`),
      Math.min(command.timeoutMs, maxTimerMs),
    )
    child.on('error', (error: NodeJS.ErrnoException) => {
      const isMissing = error.code === 'ENOENT'
      fail(isMissing ? 'cannot be started: is it installed, and does its folder exist?' : error.message, error)
    })
    // Out of file descriptors there are no pipes either; the error comes by itself.
    const { pid } = child
    if (pid === undefined) return
    ProcessGuard.ofThisThread.watch(pid).catch((error: unknown) => {
      fail(`was stopped: ${MillraceError.from(error, 'reward_failed').rawMessage}`, error)
    })
    child.stdout.on('data', (chunk: Buffer) => {
      outputBytes += chunk.length
      output.push(chunk)
      if (outputBytes > maxOutputBytes) fail(`printed more than ${maxOutputBytes / 1024} KB`)
    })
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      errorText = (errorText + text).slice(-keptErrorChars)
    })
    const onEnd = (code: number | null, killedBy: NodeJS.Signals | null): void => {
      if (code !== 0) fail(code === null ? `was killed by ${killedBy}` : `ended with code ${code}`)
      else end(() => resolve(Buffer.concat(output).toString('utf8')))
    }
    // `close` comes after the last output; what outlived the program must not delay it.
    child.on('exit', (code, killedBy) => {
      killGroup(child)
      void ProcessGuard.ofThisThread.forget(pid)
      if (isOver) return
      // What was printed is read before an immediate runs, also by a loop that was held up meanwhile.
      lingering = setTimeout(() => setImmediate(onEnd, code, killedBy), pipeLimitMs)
    })
    child.on('close', onEnd)
    // A program need not read its input; whether it did shows in its output.
    child.stdin.on('error', () => {})
    child.stdin.end(command.input)
  })
}

/** Whoever is left in it; the program itself may have ended. */
function killGroup({ pid }: ChildProcess): void {
  if (pid === undefined) return
  try {
    process.kill(-pid, 'SIGKILL')
  } catch {
    // Nobody is.
  }
}
