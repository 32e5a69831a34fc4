import { closeTogether } from '../../src/kit/index.ts'
/** V2: however a rollout ends, or we do, its servers end with it. */
import type { Agent, ServerConfig } from 'millrace'
import { calls } from 'millrace/testing'
import { expect, test, vi } from 'vitest'
import { calling, calm, sessionWith } from '../support/tools/session-with.ts'
import type { ServerEvent } from '../../src/tools/mcp/session/server-events.ts'
import { ToolServers } from '../../src/tools/mcp/sharing/tool-servers.ts'
import { misbehaving, ServerLog } from '../fixtures/mcp/misbehaving.ts'
import { notedInOrder } from '../support/tools/noted-calls.ts'
import { isRunning, survivors } from '../support/tools/processes.ts'
import { environmentWith, startRollouts } from '../support/tools/rollouts-with-servers.ts'

/** `expect.poll` does not know which of several tests at once it belongs to. */
const patience = { timeout: 120_000 }

/** Where a rollout is when it comes to its end. There are two of them, so that two processes start before any is replaced. */
const points = {
  'mid-call': {
    modes: [],
    tool: 'sleep',
    isReached: (log: ServerLog) => log.count('call') === 1,
  },
  'between turns': {
    modes: [],
    tool: 'counter',
    isReached: (log: ServerLog) => log.count('call') === 1,
  },
  'during a reconnect': {
    modes: ['hang-initialize', 'from-start=3'],
    tool: 'crash',
    isReached: (log: ServerLog) => log.count('initialize') === 3,
  },
}
const endings = ['throws', 'is cancelled', 'times out'] as const
const outcomeOf = { throws: 'agent_error', 'is cancelled': 'cancelled', 'times out': 'agent_timeout' }
/** The agent's clock stands still while it waits for a server, and the wall clock does not. The other rollout needs the tail. */
const wallLimits = (ms: number) => ({ wallTimeoutMs: ms + 120_000, tailMs: 120_000 })
const never = new Promise<never>(() => {})

const cases = Object.keys(points).flatMap((at) => endings.map((ending) => ({ at: at as keyof typeof points, ending })))

/** A machine that stands still uses up a short time before anything could happen in it. */
const limitsMs = [3_000, 60_000]

test.concurrent.for(cases)('a rollout that $ending $at leaves no server process', async ({ at, ending }) => {
  for (const timeoutMs of limitsMs) if (await endsThere({ at, ending, timeoutMs })) return
  expect.unreachable('its time was up before it was there')
})

/** False if its time was up before it was there. */
async function endsThere({ at, ending, timeoutMs }: (typeof cases)[number] & { readonly timeoutMs: number }) {
  using log = new ServerLog()
  const { modes, tool, isReached } = points[at]
  const isWaiting = at === 'during a reconnect'
  const reached = () => vi.waitUntil(() => isReached(log), patience)
  /** The first rollout comes to its end; the second one keeps the run going, with a server of its own. */
  const agent: Agent = async ({ messages, turn, tools, append }) => {
    if (messages[0]?.content !== 'task 0') return
    await vi.waitUntil(() => log.count('initialize') === 2, patience)
    const { calls: made } = await turn()
    const answered = tools.call(made)
    answered.catch(() => {})
    if (at === 'between turns') append(...(await answered))
    await reached()
    if (ending === 'throws') throw new Error('it has had enough')
    await never
  }
  const isFirstGone = Promise.withResolvers<void>()
  const environment = environmentWith(
    { mis: { ...misbehaving(log.mode, ...modes), retry: 'always', pool: { warm: 0 } } },
    {
      count: 2,
      agent,
      reward: async ({ messages }) => {
        if (messages[0]?.content !== 'task 0') await isFirstGone.promise
        return 1
      },
      limits: ending === 'times out' ? (isWaiting ? wallLimits(timeoutMs) : { timeoutMs }) : {},
    },
  )
  await using run = await startRollouts(environment, () => calls({ [tool]: { ms: 600_000 } }))
  const ended: string[] = []
  const running = (async () => {
    for await (const { outcome, task } of run.evaluation) {
      ended.push(outcome)
      if (task.index !== 0) continue
      // While the run goes on: what is left is the server of the other rollout.
      await vi.waitUntil(() => survivors(log).length === 1, patience)
      isFirstGone.resolve()
    }
  })()
  if (ending === 'is cancelled') {
    await reached()
    run.evaluation.stop()
    isFirstGone.resolve()
    await running
  } else {
    await running
    const outcome = isWaiting && ending === 'times out' ? 'infra_timeout' : outcomeOf[ending]
    expect(ended).toEqual([outcome, 'completed'])
  }
  await run.evaluation.summary()
  expect(survivors(log)).toEqual([])
  return isReached(log)
}

test.concurrent.for([
  { ending: 'throws', mode: 'list-error' },
  { ending: 'is cancelled', mode: 'list-hang' },
  { ending: 'times out', mode: 'list-hang' },
])('a rollout that $ending while its server lists its tools leaves no server process', async ({ ending, mode }) => {
  for (const timeoutMs of limitsMs) {
    using log = new ServerLog()
    const options = ending === 'times out' ? { startTimeoutMs: timeoutMs } : {}
    const environment = environmentWith({ mis: { ...misbehaving(log.mode, mode), ...options, pool: { warm: 0 } } })
    await using run = await startRollouts(environment, () => 'done')
    const running = Array.fromAsync(run.evaluation)
    if (ending === 'is cancelled') {
      await vi.waitUntil(() => log.count('list') === 1, patience)
      run.evaluation.stop()
    }
    const records = await running
    if (ending !== 'is cancelled') expect(records).toMatchObject([{ outcome: 'tool_infra_error', reward: null }])
    expect(survivors(log)).toEqual([])
    if (log.count('list') === 1) return
  }
  expect.unreachable('its time was up before its server listed')
})

const stubborn = (log: ServerLog): ServerConfig => misbehaving(log.mode, 'ignore-eof', 'ignore-sigterm')

test('servers are closed in parallel, and a second close returns the same promise', async () => {
  using log = new ServerLog()
  const shared = { ...stubborn(log), sharing: 'shared' as const }
  const all = new ToolServers({ servers: { one: shared, two: shared, three: shared, four: stubborn(log) } })
  await using lease = await all.lease({ signal: calm })
  expect(lease.catalogues).toHaveLength(4)
  const closing = all.close()
  expect(all.close()).toBe(closing)
  await closing
  expect(survivors(log)).toEqual([])
  // Each was told twice before it was killed. Nobody waited for another's second time.
  const told = notedInOrder(log, 'eof', 'sigterm')
  const servers = log.count('start')
  expect(told).toEqual([...Array(servers).fill('eof'), ...Array(servers).fill('sigterm')])
  await all.close()
})

test('a session that fails to close does not keep the others from closing', async () => {
  using log = new ServerLog()
  const one = sessionWith([log.mode]).session
  const two = sessionWith([log.mode]).session
  await Promise.all([one.open(), two.open()])
  const failing = { close: () => Promise.reject(new Error('it does not die')) }
  await expect(closeTogether([one, failing, two])).rejects.toThrow('it does not die')
  expect([one.state, two.state]).toEqual(['closed', 'closed'])
  expect(survivors(log)).toEqual([])
})

test('an idle session is closed, and opened again by the next call', async () => {
  using log = new ServerLog()
  await using made = sessionWith([log.mode, 'fork-grandchild'], { sharing: 'shared', idleMs: 100 })
  const { session, events } = made
  expect((await session.call(calling('counter'))).content).toBe('1')
  await expect.poll(() => survivors(log)).toEqual([])
  expect(events.at(-1)).toEqual({ name: 'mcp.recycled', server: 'mis', why: 'idle' })
  expect(await session.call(calling('counter'))).toMatchObject({ content: '1', detail: { generation: 2 } })
})

test('an old session is replaced after its running call', async () => {
  using log = new ServerLog()
  await using made = sessionWith([log.mode], { sharing: 'shared', maxLifetimeMs: 100 })
  const { session, events } = made
  expect(await session.call(calling('sleep', { ms: 300 }))).toMatchObject({ content: 'slept 300 ms' })
  await expect.poll(() => log.entries('start').filter(({ pid }) => isRunning(pid))).toEqual([])
  expect(events.at(-1)).toEqual({ name: 'mcp.recycled', server: 'mis', why: 'lifetime' })
  expect(await session.call(calling('counter'))).toMatchObject({ content: '1', detail: { generation: 2 } })
})

test('pooled processes are recycled when they are idle, old or used up', async () => {
  using idle = new ServerLog()
  using old = new ServerLog()
  using used = new ServerLog()
  const events: ServerEvent[] = []
  await using servers = new ToolServers({
    servers: {
      idle: { ...misbehaving(idle.mode), idleMs: 100 },
      old: { ...misbehaving(old.mode), maxLifetimeMs: 1, pool: { warm: 0, maxUses: 100 } },
      used: { ...misbehaving(used.mode), pool: { warm: 0, maxUses: 2 } },
    },
    onEvent: (event) => events.push(event),
  })
  await servers.warm()
  expect(idle.count('start')).toBe(1)
  await expect.poll(() => survivors(idle)).toEqual([])
  for (let rollout = 0; rollout < 3; rollout += 1) {
    await using lease = await servers.lease({ signal: calm })
    await lease.call('old', { ...calling('sleep', { ms: 20 }) })
    await lease.call('used', calling('counter'))
  }
  await expect.poll(() => survivors(old)).toEqual([])
  expect(old.count('start')).toBe(3)
  expect(used.count('start')).toBe(2)
  const reasons = events.flatMap((event) => (event.name === 'mcp.recycled' ? [[event.server, event.why]] : []))
  expect(reasons).toEqual(
    expect.arrayContaining([
      ['idle', 'idle'],
      ['old', 'lifetime'],
      ['used', 'uses'],
    ]),
  )
})
