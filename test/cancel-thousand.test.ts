import { evaluate, SimulatorServer } from 'millrace'
import { temporaryRuns } from 'millrace/testing'
import { expect, test, vi } from 'vitest'
import { activeResources, leftSince } from '../src/kit/_testing/active-resources.ts'
import counting from './fixtures/counting.ts'

test(
  'stopping 1,000 running rollouts aborts every connection upstream and leaves nothing behind',
  {
    timeout: 60_000,
  },
  async () => {
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
    await vi.waitFor(() => expect(server.stats.inFlight).toBe(count), { timeout: 30_000, interval: 10 })
    const summary = evaluation.summary()
    stopped.abort()
    await vi.waitFor(() => expect(server.stats).toMatchObject({ inFlight: 0, aborted: count }), {
      // How fast is measured by bench/cancel; here it must only happen.
      timeout: 20_000,
      interval: 5,
    })
    // Stopped, not ended: all of them can be resumed.
    expect(await summary).toMatchObject({ end: 'stopped', rollouts: 0 })
    expect(await leftSince(before)).toEqual([])
  },
)
