/** A tool server that is away costs time, not rollouts. */
import { calls, temporaryRuns, type Script } from 'millrace/testing'
import { expect, test } from 'vitest'
import { HttpMcpServer } from '../support/tools/http-mcp-server.ts'
import { misbehaving, ServerLog } from '../fixtures/mcp/misbehaving.ts'
import { areRunning, countOutcomes, pooledRun } from '../support/workers/pooled-run.ts'
import { isRunning } from '../support/tools/processes.ts'
import { environmentWith, startRollouts } from '../support/tools/rollouts-with-servers.ts'

/** Makes three calls, one in each turn, and waits before the second call until it is let go. */
function threeCalls(tool: string) {
  const letGo = Promise.withResolvers<void>()
  const script: Script = async ({ messages }) => {
    const answered = messages.filter(({ role }) => role === 'tool').length
    if (answered === 1) await letGo.promise
    return answered < 3 ? calls({ [tool]: { message: 'hi' } }) : 'done'
  }
  return { script, letGo: letGo.resolve }
}

test.for(['shared', 'session'] as const)(
  'rollouts wait for an absent %s server over HTTP, no new one starts, and all are scored',
  async (sharing) => {
    const first = await HttpMcpServer.start({ answers: 'json' })
    const { url, port } = first
    const { script, letGo } = threeCalls('look')
    let starts = 0
    const environment = environmentWith(
      { web: { url, sharing, onRestart: 'tell' } },
      { count: 40, setup: () => (starts += 1) },
    )
    await using run = await startRollouts(environment, script, { concurrency: 8 })
    const { evaluation } = run
    const ended = Array.fromAsync(evaluation)
    const servers = () => evaluation.progress().servers
    await expect.poll(() => first.calls.length).toBe(8)
    await first.close()
    letGo()
    await expect.poll(servers).toMatchObject([{ server: 'web', state: 'away', waiting: 8 }])
    expect(servers()[0]?.awayBecause).toContain('ECONNREFUSED')
    expect(starts).toBe(8)
    await using _again = await HttpMcpServer.start({ port, answers: 'json' })
    const records = await ended
    expect(records.map(({ outcome, attempt, reward }) => [outcome, attempt, reward])).toEqual(
      Array.from({ length: 40 }, () => ['completed', 1, 1]),
    )
    expect(servers()).toMatchObject([{ server: 'web', state: 'open', waiting: 0 }])
    using reader = await run.reader()
    const [away, back] = ['mcp.away', 'mcp.back'].map((name) => Array.from(reader.events(name), ({ data }) => data))
    expect([away, back]).toMatchObject([[{ server: 'web' }], [{ server: 'web', ms: expect.any(Number) }]])
    // The whole wait of the rollout that found out is on the wall clock, and none of it is working time.
    const [{ ms }] = back as [{ ms: number }]
    const longest = Math.max(...records.map(({ timing }) => timing.waitMs))
    expect(longest).toBeGreaterThanOrEqual(ms - 1)
    for (const { timing } of records) {
      expect(timing.toolMs + timing.waitMs + timing.modelMs).toBeLessThanOrEqual(timing.wallMs + 10)
    }
  },
)

test.for(['shared', 'session'] as const)(
  'rollouts wait for a %s server that listens, but starts for longer than the call timeout',
  async (sharing) => {
    const first = await HttpMcpServer.start({ answers: 'json' })
    const { url, port } = first
    const { script, letGo } = threeCalls('look')
    const config = { url, sharing, onRestart: 'tell', callTimeoutMs: 1_000, startTimeoutMs: 2_000 } as const
    await using run = await startRollouts(environmentWith({ web: config }, { count: 12 }), script, { concurrency: 8 })
    const ended = Array.fromAsync(run.evaluation)
    const servers = () => run.evaluation.progress().servers
    await expect.poll(() => first.calls.length).toBe(8)
    await first.close()
    const started = Promise.withResolvers<void>()
    await using _again = await HttpMcpServer.start({ port, answers: 'json', ready: started.promise })
    letGo()
    await expect.poll(servers, { timeout: 10_000 }).toMatchObject([{ server: 'web', state: 'away', waiting: 8 }])
    expect(servers()[0]?.awayBecause).toContain('did not initialise and list its tools within 2000 ms')
    started.resolve()
    const records = await ended
    expect(records.map(({ outcome, attempt, reward }) => [outcome, attempt, reward])).toEqual(
      Array.from({ length: 12 }, () => ['completed', 1, 1]),
    )
    using reader = await run.reader()
    const [back] = Array.from(reader.events('mcp.back'), ({ data }) => data as { readonly ms: number })
    // The opening that found out that the server is away is no working time either.
    const longest = Math.max(...records.map(({ timing }) => timing.waitMs))
    expect(longest).toBeGreaterThanOrEqual(config.startTimeoutMs + (back?.ms ?? Infinity) - 2)
  },
)

test('rollouts on worker processes wait for an absent server, also on a worker that starts meanwhile', async () => {
  await using runs = await temporaryRuns()
  const first = await HttpMcpServer.start({ answers: 'json' })
  const { url, port } = first
  let again: HttpMcpServer | undefined
  const records = await pooledRun({
    root: runs.root,
    kind: 'process',
    environment: 'mcp/away',
    count: 4,
    concurrency: 2,
    size: 1,
    startsPaused: true,
    options: { url },
    during: async (run) => {
      const { pool } = run
      const waiting = [{ server: 'web', state: 'away', waiting: 2 }]
      await areRunning(run, 2)
      await expect.poll(() => run.places().length).toBeGreaterThan(0)
      await first.close()
      run.open()
      await expect.poll(() => pool.servers()).toMatchObject(waiting)
      // What this worker ran starts over on another one, which has never seen the server.
      process.kill(run.places()[0]?.pid ?? 0, 'SIGKILL')
      await expect.poll(() => pool.servers()).not.toMatchObject(waiting)
      await expect.poll(() => pool.servers()).toMatchObject(waiting)
      again = await HttpMcpServer.start({ port, answers: 'json' })
    },
  })
  await again?.close()
  expect(countOutcomes(records)).toEqual({ completed: 4 })
})

test('rollouts wait for a shared command that crashes repeatedly', async () => {
  using log = new ServerLog()
  const config = { ...misbehaving(log.mode), sharing: 'shared', reconnect: { max: 1, windowMs: 600_000 } } as const
  const script: Script = ({ messages }) =>
    messages.length === 1 ? calls({ echo_read_only: { message: 'hi' } }) : String(messages.at(-1)?.content)
  // Each rollout has the server before it makes its call, and loses it then.
  const setup = async () => {
    const { pid } = log.entries('start').at(-1) ?? { pid: 0 }
    process.kill(pid, 'SIGKILL')
    await expect.poll(() => isRunning(pid)).toBe(false)
  }
  await using run = await startRollouts(environmentWith({ mis: config }, { count: 4, setup }), script, {
    concurrency: 1,
  })
  const records = await Array.fromAsync(run.evaluation)
  expect(records.map(({ outcome, attempt, answer }) => [outcome, attempt, answer])).toEqual(
    Array.from({ length: 4 }, () => ['completed', 1, 'Echo: hi']),
  )
  using reader = await run.reader()
  expect([Array.from(reader.events('mcp.away')), Array.from(reader.events('mcp.back'))]).toMatchObject([
    { length: 3 },
    { length: 3 },
  ])
})

test('a server that is absent for longer than awayTimeoutMs fails its rollouts, with the reason', async () => {
  const server = await HttpMcpServer.start()
  const { script, letGo } = threeCalls('look')
  const config = { url: server.url, sharing: 'shared', awayTimeoutMs: 100 } as const
  await using run = await startRollouts(environmentWith({ web: config }, { count: 6 }), script, { concurrency: 2 })
  const ended = Array.fromAsync(run.evaluation)
  await expect.poll(() => server.calls.length).toBe(2)
  await server.close()
  letGo()
  for (const { outcome, error } of await ended) {
    expect(outcome).toBe('tool_infra_error')
    expect(error?.message).toMatch(/'web' has been away for \d+ ms, and rollouts wait 100 ms.*ECONNREFUSED/)
  }
})

test('the error names the absent server if the wall time of a rollout ends while it waits', async () => {
  const server = await HttpMcpServer.start()
  const { script, letGo } = threeCalls('look')
  const limits = { wallTimeoutMs: 1_500, tailMs: 100 }
  const environment = environmentWith({ web: { url: server.url, sharing: 'shared' } }, { limits })
  await using run = await startRollouts(environment, script)
  const ended = Array.fromAsync(run.evaluation)
  await expect.poll(() => server.calls.length).toBe(1)
  await server.close()
  letGo()
  const [record] = await ended
  expect(record).toMatchObject({ outcome: 'infra_timeout', reward: null })
  expect(record?.error?.message).toMatch(/in tool look, while it waited for a tool server that is away: .*ECONNREFUSED/)
})
