import { temporaryRuns } from 'millrace/testing'
import { afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { MillraceError } from '../../src/errors/index.ts'
import type { BlockedLoop } from '../../src/rollout/index.ts'
import { expectNothingLeftSince, held, warmUp } from '../support/workers/held-resources.ts'
import { areRunning, countOutcomes, expectOneOutcomeEach, pooledRun, restarts } from '../support/workers/pooled-run.ts'

let before: ReturnType<typeof held>
beforeAll(warmUp)
beforeEach(() => void (before = held()))
afterEach(() => expectNothingLeftSince(before))

describe('a worker process', () => {
  test('that is killed is replaced, and its rollouts start over', async () => {
    await using runs = await temporaryRuns()
    const records = await pooledRun({
      root: runs.root,
      kind: 'process',
      count: 200,
      startsPaused: true,
      during: async (run) => {
        await areRunning(run, 50)
        await expect.poll(() => run.places().length).toBeGreaterThan(0)
        process.kill(run.places()[0]?.pid ?? 0, 'SIGKILL')
        await expect.poll(() => restarts(run)).toBe(1)
        run.open()
      },
    })
    expect(countOutcomes(records)).toEqual({ completed: 200 })
    expect(records.filter(({ attempt }) => attempt === 2).length).toBeGreaterThan(0)
    expect(Math.max(...records.map(({ attempt }) => attempt))).toBe(2)
    expectOneOutcomeEach(runs.root, records, 200)
  })

  test('that is suspended is replaced, and does no harm when it resumes', async () => {
    await using runs = await temporaryRuns()
    const records = await pooledRun({
      root: runs.root,
      kind: 'process',
      count: 200,
      startsPaused: true,
      supervision: { silentAfterMs: 1_000, replaceAfterMs: 2_000 },
      during: async (run) => {
        await areRunning(run, 50)
        await expect.poll(() => run.places().length).toBeGreaterThan(0)
        const stopped = run.places()[0]?.pid ?? 0
        process.kill(stopped, 'SIGSTOP')
        await expect.poll(() => run.pool.workers().some(({ state }) => state === 'silent')).toBe(true)
        await expect.poll(() => restarts(run)).toBeGreaterThan(0)
        // It was ended when it was given up: what is continued here is gone.
        await expect.poll(() => hasEnded(stopped)).toBe(true)
        run.open()
      },
    })
    expect(countOutcomes(records)).toEqual({ completed: 200 })
    expectOneOutcomeEach(runs.root, records, 200)
  })
})

test.each(['thread', 'process'] as const)('the function that blocks a worker is named (%s)', async (kind) => {
  await using runs = await temporaryRuns()
  const blocked: BlockedLoop[] = []
  await pooledRun({
    root: runs.root,
    kind,
    count: 1,
    size: 1,
    options: { every: 1, mishap: 'endless' },
    supervision: { silentAfterMs: 1_000 },
    onBlocked: (loop) => blocked.push(loop),
    during: async ({ pool, scheduler }) => {
      const name = kind === 'thread' ? /^spin \(.*mishaps\.ts:\d+\)$/ : /^one of its rollouts \(0-0\)$/
      await expect
        .poll(() => pool.workers()[0])
        .toMatchObject({ state: 'silent', blockedBy: expect.stringMatching(name) })
      const seen = { worker: 1, blockedBy: expect.stringMatching(name) as string }
      expect(blocked).toContainEqual(expect.objectContaining(seen))
      // It is looked at after four missed beats, on a clock that may be a millisecond off.
      expect(blocked[0]?.lagMs).toBeGreaterThan(990)
      scheduler.stop(new MillraceError('cancelled', 'seen enough'))
    },
  })
})

function hasEnded(pid: number): boolean {
  try {
    process.kill(pid, 'SIGCONT')
    return false
  } catch {
    return true
  }
}

describe('a poison rollout among 200 others', () => {
  test.each([
    ['exits', 'thread', 'exit'],
    ['throws where nobody catches it', 'thread', 'throw'],
    ['takes all memory', 'thread', 'memory'],
    ['never gives the loop back', 'thread', 'endless'],
    ['kills its process', 'process', 'sigkill'],
    ['exits', 'process', 'exit'],
    ['never gives the loop back', 'process', 'endless'],
  ] as const)('%s (%s)', async (_, kind, mishap) => {
    await using runs = await temporaryRuns()
    const records = await pooledRun({
      root: runs.root,
      kind,
      count: 201,
      // Some 16 on each worker. More would only start more workers, one for each suspect that runs alone.
      concurrency: 32,
      options: { every: 101, mishap, ms: 20 },
      supervision: { heap: { maxOldGenerationMb: 64 }, ...(mishap === 'endless' && { replaceAfterMs: 2_000 }) },
    })
    expect(countOutcomes(records)).toEqual({ completed: 200, poisoned: 1 })
    const poisoned = records.find(({ outcome }) => outcome === 'poisoned')
    expect(poisoned).toMatchObject({ id: '100-0', reward: null, error: { code: 'worker_lost' } })
    // It took few workers along, and each innocent rollout but few times.
    expect(poisoned?.attempt).toBeLessThanOrEqual(4)
    expect(Math.max(...records.map(({ attempt }) => attempt))).toBeLessThanOrEqual(4)
    expectOneOutcomeEach(runs.root, records, 201)
    if (mishap === 'endless') expect(poisoned?.error?.message).toMatch(/blocked for \d+ ms/)
    if (mishap === 'memory') expect(poisoned?.error?.message).toMatch(/ran out of memory/)
    if (mishap === 'throw') expect(poisoned?.error?.message).toMatch(/nobody catches this \(at .*mishaps\.ts:\d+\)/)
  })
})
