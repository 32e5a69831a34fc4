import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'

const bin = fileURLToPath(new URL('../../../bin/millrace.js', import.meta.url))

/** On a busy machine a command may take longer than two seconds to start, and then says what it is busy with. */
const slowStart = /^[a-z ].*… \(\d.*s\)\n/gm

/** A file of test/fixtures. */
export function fixture(name: string): string {
  return fileURLToPath(new URL(`../../fixtures/${name}`, import.meta.url))
}

export interface Ended {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

interface Place {
  readonly cwd: string
  readonly env?: Readonly<Record<string, string>>
  /** Whose process it is; the caller's own if not given. */
  readonly uid?: number
}

/** The real command in a process of its own, to its end. */
export async function millrace(place: Place, ...words: readonly string[]): Promise<Ended> {
  await using running = startMillrace(place, ...words)
  return await running.ended
}

export interface Running extends AsyncDisposable {
  readonly process: ChildProcess
  readonly ended: Promise<Ended>
  /** What it has written so far. */
  stdout(): string
  /** Resolves once the stream has shown the text, so many times; rejects if the command ends before that. */
  shows(stream: 'stdout' | 'stderr', text: string, times?: number): Promise<void>
}

export function startMillrace({ cwd, env = {}, uid }: Place, ...words: readonly string[]): Running {
  const child = spawn(process.execPath, [bin, ...words], {
    cwd,
    // Nothing of the developer's own environment: no keys, no proxies, no colours.
    env: { PATH: process.env['PATH'], HOME: cwd, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
    ...(uid !== undefined && { uid }),
  })
  const written = { stdout: '', stderr: '' }
  child.stdout.setEncoding('utf8').on('data', (text: string) => (written.stdout += text))
  child.stderr.setEncoding('utf8').on('data', (text: string) => (written.stderr += text))
  const closed = once(child, 'close').then(() => 'closed' as const)
  return {
    process: child,
    ended: closed.then(() => {
      const { stdout, stderr } = written
      return { code: child.exitCode, stdout, stderr: stderr.replaceAll(slowStart, '') }
    }),
    stdout: () => written.stdout,
    async shows(stream, text, times = 1) {
      while (written[stream].split(text).length <= times) {
        const next = await Promise.race([once(child[stream], 'data'), closed])
        if (next === 'closed') throw new Error(`millrace ended before it said ${text}: ${written.stderr}`)
      }
    },
    async [Symbol.asyncDispose]() {
      if (child.exitCode === null && child.signalCode === null) child.kill('SIGKILL')
      await closed
    },
  }
}

/** The objects of `--json`; throws if stdout holds anything else. */
export function objects(stdout: string): Record<string, unknown>[] {
  return stdout
    .split('\n')
    .slice(0, -1)
    .map((line) => JSON.parse(line) as Record<string, unknown>)
}

/** Ids of the rollouts that `--json` reported. */
export function reportedIds(stdout: string): string[] {
  return objects(stdout).flatMap(({ type, id }) => (type === 'rollout' ? [String(id)] : []))
}
