import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { text } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'

const bin = fileURLToPath(new URL('../../bin/millrace.js', import.meta.url))

/** A file of test/fixtures. */
export function fixture(name: string): string {
  return fileURLToPath(new URL(`../fixtures/${name}`, import.meta.url))
}

export interface Ended {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

interface Place {
  readonly cwd: string
  readonly env?: Readonly<Record<string, string>>
}

/** The real command in a process of its own, to its end. */
export async function millrace(place: Place, ...words: readonly string[]): Promise<Ended> {
  await using running = startMillrace(place, ...words)
  return await running.ended
}

export interface Running extends AsyncDisposable {
  readonly process: ChildProcess
  readonly ended: Promise<Ended>
  /** Resolves at the first line on stdout that the condition holds for; rejects if there is none. */
  line(condition: (line: string) => boolean): Promise<string>
}

export function startMillrace({ cwd, env = {} }: Place, ...words: readonly string[]): Running {
  const child = spawn(process.execPath, [bin, ...words], {
    cwd,
    // Nothing of the developer's own environment: no keys, no proxies, no colours.
    env: { PATH: process.env['PATH'], HOME: cwd, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const ended = Promise.all([text(child.stdout), text(child.stderr), once(child, 'close')]).then(
    ([stdout, stderr]): Ended => ({ code: child.exitCode, stdout, stderr }),
  )
  return {
    process: child,
    ended,
    async line(condition) {
      for await (const line of createInterface({ input: child.stdout })) if (condition(line)) return line
      throw new Error(`millrace ended before that line: ${(await ended).stderr}`)
    },
    async [Symbol.asyncDispose]() {
      if (child.exitCode === null && child.signalCode === null) child.kill('SIGKILL')
      await ended
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
