import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'

/** The full run of 100,000 is `npm run bench -- memory`; this is a fifth of it, with the same bars. */
test('20,000 rollouts at concurrency 1,000 stay within the memory bounds, also while they wait', async () => {
  const command = ['--no-warnings', 'bench/run.ts', 'memory', '--quick', '--json']
  const { stdout } = await promisify(execFile)(process.execPath, command).catch(
    (error: { stdout: string; stderr: string }) => error,
  )
  const last = stdout.trim().split('\n').at(-1) ?? ''
  const { bars } = JSON.parse(last) as { bars: { name: string; value: number; bar: string; holds: boolean }[] }
  expect(bars).toHaveLength(4)
  expect(bars.filter(({ holds }) => !holds)).toEqual([])
})
