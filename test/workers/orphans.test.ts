import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { fixture, startMillrace } from '../support/cli/millrace-process.ts'

test.each([
  ['idle', 'none'],
  ['blocked', 'endless'],
])('a worker process that is %s ends when its supervisor is killed', async (_, mishap) => {
  await using runs = await temporaryRuns()
  const log = join(runs.root, 'log')
  const words = ['eval', fixture('workers/mishaps-isolated.ts'), '-m', 'sim', '--workers', '1', '--env.count=1']
  const options = ['--env.every=1', `--env.mishap=${mishap}`, `--env.log=${log}`, `--env.gate=${runs.root}/never`]
  await using running = startMillrace(
    { cwd: runs.root },
    ...words,
    ...(mishap === 'endless' ? options.slice(0, 3) : options),
  )
  // A whole line: what is being written is no number yet.
  await expect.poll(() => existsSync(log) && readFileSync(log, 'utf8').includes('\n')).toBe(true)
  const pid = Number(readFileSync(log, 'utf8').split(' ')[0])
  expect(isAlive(pid)).toBe(true)
  if (mishap === 'endless') await isBlocked(pid)
  running.process.kill('SIGKILL')
  await expect.poll(() => isAlive(pid)).toBe(false)
})

/** Its processor time grows by a whole second: that is its endless loop, and nothing that it does to start. */
async function isBlocked(pid: number): Promise<void> {
  const begun = ticksOf(pid)
  await expect.poll(() => ticksOf(pid) - begun).toBeGreaterThan(ticksPerSecond)
}

const ticksPerSecond = 100

/** In user mode; the name of the program, which comes before, may have spaces in it. */
function ticksOf(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ').at(-1)?.split(' ') ?? []
  return Number(fields[11])
}

/** One that has ended but that nobody has waited for is not alive. */
function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'))
  } catch {
    return false
  }
}
