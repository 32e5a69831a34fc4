import { temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { MillraceError } from '../../src/errors/index.ts'
import { countOutcomes, pooledRun } from '../support/workers/pooled-run.ts'

test('a call during the replacement of the only worker waits for the next worker', async () => {
  await using runs = await temporaryRuns()
  await pooledRun({
    root: runs.root,
    kind: 'process',
    count: 1,
    size: 1,
    during: async (run) => {
      const { pool, records } = run
      await expect.poll(() => records.length).toBe(1)
      expect(pool.takesWork).toBe(true)
      process.kill(run.places()[0]?.pid ?? 0, 'SIGKILL')
      await expect.poll(() => pool.takesWork).toBe(false)
      await pool.preflight(new AbortController().signal)
      expect(pool.takesWork).toBe(true)
    },
  })
})

test('a suspect that is cancelled before its worker is ready leaves no worker behind', async () => {
  await using runs = await temporaryRuns()
  const records = await pooledRun({
    root: runs.root,
    kind: 'process',
    count: 1,
    size: 1,
    options: { every: 1, mishap: 'exit' },
    during: async ({ pool, scheduler }) => {
      const suspects = (): number => pool.workers().filter(({ id }) => id < 0).length
      await expect.poll(suspects, { interval: 5 }).toBe(1)
      scheduler.cancel('0-0', new MillraceError('cancelled', 'no longer wanted'))
      await expect.poll(suspects).toBe(0)
      await expect.poll(() => pool.takesWork).toBe(true)
    },
  })
  expect(countOutcomes(records)).toEqual({ cancelled: 1 })
})

test('closing a pool while workers are replaced and added fails only the pending requests', async () => {
  await using runs = await temporaryRuns()
  await pooledRun({
    root: runs.root,
    kind: 'thread',
    count: 1,
    size: 1,
    during: async ({ pool, records }) => {
      await expect.poll(() => records.length).toBe(1)
      const asked = Promise.allSettled([pool.restart(), pool.resize(3)])
      await expect.poll(() => pool.workers().some(({ state }) => state === 'starting'), { interval: 5 }).toBe(true)
      await pool.close()
      const refused = { status: 'rejected', reason: { code: 'closed' } }
      expect(await asked).toMatchObject([refused, refused])
      expect(pool.workers()).toEqual([])
    },
  })
})
