import { temporaryRuns } from 'millrace/testing'
import { describe, expect, it } from 'vitest'
import { fixture, millrace, objects, reportedIds } from './_millrace.ts'

const words = (how: string, ...more: string[]): string[] => {
  const common = ['eval', fixture('stray.ts'), '-m', 'sim', '-c', '2', '--sim.ttftMs=20', '--run', 'it', '--json']
  return [...common, `--env.how=${how}`, ...more]
}

describe.concurrent.each(['inline', 'thread'])('an error that belongs to no rollout (%s)', (executor) => {
  it('costs a notice if it is a rejected promise, and the run goes on', async () => {
    await using place = await temporaryRuns()
    const ended = await millrace({ cwd: place.root }, ...words('rejects', '--executor', executor))
    expect(ended.code, ended.stderr).toBe(0)
    expect(ended.stderr).toMatch(
      /^A promise was rejected and nobody handled it: nobody waits for 1 \(at .*stray\.ts:\d+\)\. The run goes on; await it/,
    )
    expect(ended.stderr).toContain('\n4 rejected promises were handled by nobody.\n')
    expect(ended.stderr.match(/nobody waits for/g)).toHaveLength(1)
    expect(objects(ended.stdout).at(-1)).toMatchObject({ end: 'complete', rollouts: 20, scored: 20 })
  })

  it('stops the run if nothing caught it, and the run can be continued', async () => {
    await using place = await temporaryRuns()
    const cwd = place.root
    const ended = await millrace({ cwd }, ...words('throws', '--executor', executor))
    expect(ended.code, ended.stderr).toBe(1)
    expect(ended.stderr).toMatch(
      /^error: .*: a timer went off \(at .*stray\.ts:\d+\)\. .* \[(agent_failed|worker_lost)\]$/m,
    )
    expect(ended.stderr).toMatch(/What has ended is kept\. Continue with:\n {2}millrace eval .* --run it\n/)
    expect(ended.stderr).not.toMatch(/^\s+at /m)
    const before = reportedIds(ended.stdout)
    expect(before.length).toBeGreaterThan(0)
    const debugged = await millrace({ cwd }, ...words('throws', '--executor', executor, '--debug'))
    expect(debugged.code).toBe(1)
    expect(debugged.stderr).toMatch(/at .*stray\.ts:\d+:\d+\)?$/m)
    expect(reportedIds(debugged.stdout).filter((id) => before.includes(id))).toEqual([])
  })

  it('cannot mix with the JSON what an environment prints', async () => {
    await using place = await temporaryRuns()
    const ended = await millrace({ cwd: place.root }, ...words('prints', '--env.count=3', '--executor', executor))
    expect(ended.code).toBe(0)
    expect(objects(ended.stdout).map(({ type }) => type)).toEqual(['start', 'rollout', 'rollout', 'rollout', 'summary'])
    expect(ended.stderr.split('\n').toSorted()).toEqual(['', 'at task 0', 'at task 1', 'at task 2'])
  })
})
