import { setTimeout as pause } from 'node:timers/promises'
import { evaluate, SimulatorServer } from 'millrace'
import { temporaryRuns } from 'millrace/testing'
import { expect, test, vi } from 'vitest'
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
    const before = activity()
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
    // Sockets take a moment to close. Not waitFor: its own timer would be among what is counted.
    for (let look = 0; look < 200 && leftOver(before).length > 0; look += 1) await pause(20)
    expect(leftOver(before)).toEqual([])
  },
)

/** The kinds of which there are more than there were. */
function leftOver(before: Record<string, number>): string[] {
  return Object.entries(activity()).flatMap(([kind, count]) =>
    count > (before[kind] ?? 0) ? [`${kind} ${count}`] : [],
  )
}

/** What keeps a process alive, by kind; the server under test has its own listener in it before and after. */
function activity(): Record<string, number> {
  const counts: Record<string, number> = {}
  for (const kind of process.getActiveResourcesInfo()) {
    if (kind === 'Timeout' || kind.startsWith('TCP') || kind === 'MessagePort') counts[kind] = (counts[kind] ?? 0) + 1
  }
  return counts
}
