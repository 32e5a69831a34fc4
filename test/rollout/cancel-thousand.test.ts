import { evaluate, SimulatorServer } from 'millrace'
import { temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { activeResources, leftSince } from '../support/kit/active-resources.ts'
import counting from '../fixtures/counting.ts'

test('stopping 1,000 running rollouts aborts every upstream connection and leaves nothing behind', async () => {
  const count = 1_000
  await using server = await SimulatorServer.start({ 'faults.hang': 1 })
  await using runs = await temporaryRuns()
  const before = activeResources()
  const stopped = new AbortController()
  const evaluation = evaluate({
    environment: counting,
    options: { count },
    model: { name: 'hung', backends: [{ url: server.url }], price: { input: 0, output: 0 } },
    concurrency: count,
    preflight: false,
    run: { root: runs.root, name: 'cancelled' },
    signal: stopped.signal,
  })
  await evaluation.started
  await expect.poll(() => server.stats.inFlight, { interval: 10 }).toBe(count)
  const summary = evaluation.summary()
  stopped.abort()
  // How fast is measured by bench/cancel; here it must only happen.
  await expect.poll(() => server.stats, { interval: 5 }).toMatchObject({ inFlight: 0, aborted: count })
  // Stopped, not ended: all of them can be resumed.
  expect(await summary).toMatchObject({ end: 'stopped', rollouts: 0 })
  expect(await leftSince(before)).toEqual([])
})
