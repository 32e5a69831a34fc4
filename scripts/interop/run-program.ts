import { spawn } from 'node:child_process'

interface RunOptions {
  readonly timeoutMs: number
  readonly cwd?: string
  /** The whole environment; ours if not given. */
  readonly env?: NodeJS.ProcessEnv
  /** Whether its output is also ours. */
  readonly isShown?: boolean
}

/**
 * Runs a program with an empty input, and returns its exit code and both outputs. It has a process group of its own, all of
 * which is killed when it ends or its time is up: agents start servers and shells. The code is null if it was killed or could
 * not be started.
 */
export async function runProgram(
  program: string,
  words: readonly string[],
  { timeoutMs, cwd, env, isShown = false }: RunOptions,
): Promise<{ readonly code: number | null; readonly output: string }> {
  const child = spawn(program, words, { cwd, env, detached: true, stdio: ['ignore', 'pipe', 'pipe'] })
  const pieces: string[] = []
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (text: string) => {
      pieces.push(text)
      if (isShown) process.stdout.write(text)
    })
  }
  const { promise, resolve } = Promise.withResolvers<number | null>()
  const killGroup = (): void => {
    if (child.pid === undefined) return
    try {
      process.kill(-child.pid, 'SIGKILL')
    } catch {
      // All of it has ended.
    }
  }
  const timer = setTimeout(() => {
    pieces.push(`\nnot done after ${timeoutMs / 1000} s\n`)
    killGroup()
  }, timeoutMs)
  child.on('error', (error) => {
    pieces.push(error.message)
    resolve(null)
  })
  // An interrupt of this process does not reach it.
  process.on('exit', killGroup)
  // What it has left behind may hold its outputs open.
  child.on('exit', killGroup)
  child.on('close', resolve)
  const code = await promise
  clearTimeout(timer)
  process.off('exit', killGroup)
  return { code, output: pieces.join('') }
}
