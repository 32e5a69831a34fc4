import { temporaryRuns } from 'millrace/testing'
import { describe, expect, it } from 'vitest'
import { fixture, millrace, objects, reportedIds } from '../support/cli/millrace-process.ts'

const words = (how: string, ...more: string[]): string[] => {
  const common = ['eval', fixture('unhandled.ts'), '-m', 'sim', '-c', '2', '--sim.ttftMs=20', '--run', 'it', '--json']
  return [...common, `--env.how=${how}`, ...more]
}

describe.concurrent.each([
  ['on the main thread', []],
  ['in a worker', ['--workers', '1']],
] as const)('an error that belongs to no rollout, %s,', (_, where) => {
  it('only prints a notice if it is a rejected promise, and the run continues', async () => {
    await using runs = await temporaryRuns()
    const ended = await millrace({ cwd: runs.root }, ...words('rejects', ...where))
    expect(ended.code, ended.stderr).toBe(0)
    expect(ended.stderr).toMatch(
      /^A rejected promise was not handled: nobody waits for 1 \(at .*unhandled\.ts:\d+\)\. The run goes on; await it/,
    )
    expect(ended.stderr).toContain('\n4 promise rejections were not handled.\n')
    expect(ended.stderr.match(/nobody waits for/g)).toHaveLength(1)
    expect(objects(ended.stdout).at(-1)).toMatchObject({ end: 'complete', rollouts: 20, scored: 20 })
  })

  it('does not occur when an environment prints: its output stays out of the JSON', async () => {
    await using runs = await temporaryRuns()
    const ended = await millrace({ cwd: runs.root }, ...words('prints', '--env.count=3', ...where))
    expect(ended.code).toBe(0)
    expect(objects(ended.stdout).map(({ type }) => type)).toEqual(['start', 'rollout', 'rollout', 'rollout', 'summary'])
    expect(ended.stderr.split('\n').toSorted()).toEqual(['', 'at task 0', 'at task 1', 'at task 2'])
  })
})

describe.concurrent('an uncaught error', () => {
  it('stops the run if it is thrown on the main thread; the run can be continued', async () => {
    await using runs = await temporaryRuns()
    const cwd = runs.root
    const ended = await millrace({ cwd }, ...words('throws'))
    expect(ended.code, ended.stderr).toBe(1)
    expect(ended.stderr).toMatch(/^error: .*: a timer went off \(at .*unhandled\.ts:\d+\)\. .* \[agent_failed\]$/m)
    expect(ended.stderr).toMatch(/Ended rollouts are kept\. Continue with:\n {2}(npx )?millrace eval .* --run it\n/)
    expect(ended.stderr).not.toMatch(/^\s+at /m)
    const before = reportedIds(ended.stdout)
    expect(before.length).toBeGreaterThan(0)
    const debugged = await millrace({ cwd }, ...words('throws', '--debug'))
    expect(debugged.code).toBe(1)
    expect(debugged.stderr).toMatch(/at .*unhandled\.ts:\d+:\d+\)?$/m)
    expect(reportedIds(debugged.stdout).filter((id) => before.includes(id))).toEqual([])
  })

  it('ends only the rollout that threw it if it is thrown in a worker', async () => {
    await using runs = await temporaryRuns()
    const ended = await millrace({ cwd: runs.root }, ...words('throws', '--workers', '1'))
    expect(ended.code, ended.stderr).toBe(3)
    expect(objects(ended.stdout).at(-1)).toMatchObject({ end: 'complete', rollouts: 20, scored: 19 })
    const poisoned = objects(ended.stdout).filter(({ outcome }) => outcome === 'poisoned')
    expect(poisoned).toMatchObject([{ id: '8-0' }])
    expect(JSON.stringify(poisoned)).toMatch(/a timer went off \(at .*unhandled\.ts:\d+\)/)
  })
})
