/** The ways to share a server, as processes that are counted: what a rollout gets, and what it costs. */
import { expect, test } from 'vitest'
import type { ServerConfig } from '../../src/tools/mcp/config/server-config.ts'
import type { ServerEvent } from '../../src/tools/mcp/session/server-events.ts'
import { ToolServers } from '../../src/tools/mcp/sharing/tool-servers.ts'
import { misbehaving, ServerLog } from '../fixtures/mcp/misbehaving.ts'

const { signal } = new AbortController()

const shared = (...modes: string[]) => ({ ...misbehaving(...modes), sharing: 'shared' }) as const
const pooled = (...modes: string[]) => ({ ...misbehaving(...modes), pool: { warm: 0 } })

function serversOf(servers: Record<string, ServerConfig>, maxStarts = 8) {
  const events: ServerEvent[] = []
  const all = new ToolServers({ servers, maxStarts, onEvent: (event) => events.push(event) })
  return Object.assign(all, { events })
}

const call = (tool: string, args: Record<string, unknown> = {}) => ({ tool, arguments: args, signal })

test('shared: all rollouts use one process', async () => {
  await using servers = serversOf({ one: shared() })
  await using first = await servers.lease({ signal })
  await using second = await servers.lease({ signal })
  const counted = [await first.call('one', call('counter')), await second.call('one', call('counter'))]
  expect(counted.map(({ content }) => content)).toEqual(['1', '2'])
})

test('pooled, the default for a command: each rollout has its own process', async () => {
  using log = new ServerLog()
  await using servers = serversOf({ one: pooled(log.mode) })
  {
    const leases = await Promise.all([servers.lease({ signal }), servers.lease({ signal })])
    const counted = await Promise.all(leases.map((lease) => lease.call('one', call('counter'))))
    expect(counted.map(({ content }) => content)).toEqual(['1', '1'])
    await Promise.all(leases.map((lease) => lease[Symbol.asyncDispose]()))
  }
  expect(log.count('start')).toBe(2)
  expect(servers.events).toContainEqual({ name: 'mcp.recycled', server: 'one', why: 'uses' })
})

test('all servers open in parallel', async () => {
  using log = new ServerLog()
  // None of them goes on before it was told to stop, so that all three can only be there together.
  const waiting = shared(log.mode, 'hang-initialize')
  const servers = serversOf({ one: waiting, two: waiting, three: waiting })
  const warm = servers.warm()
  await expect.poll(() => log.count('initialize')).toBe(3)
  await Promise.all([servers.close(), warm])
})

test('the number of concurrent starts is limited', async () => {
  using log = new ServerLog()
  const failing = { ...shared(log.mode, 'exit-before-initialize'), required: false }
  const startsSeen: number[] = []
  await using servers = new ToolServers({
    servers: { one: failing, two: failing, three: failing },
    maxStarts: 1,
    onEvent: () => startsSeen.push(log.count('start')),
  })
  await servers.warm()
  expect(startsSeen).toEqual([1, 2, 3])
})

test('a failed required server fails the rollout as infrastructure failure, and the others are released', async () => {
  using goodLog = new ServerLog()
  using badLog = new ServerLog()
  const good = { ...misbehaving(goodLog.mode), pool: { max: 1 } }
  const bad = pooled(badLog.mode, 'exit-before-initialize=4', 'until-start=3')
  await using servers = serversOf({ good, bad })
  await servers.warm()
  for (let rollout = 0; rollout < 2; rollout += 1) {
    await expect(servers.lease({ signal })).rejects.toMatchObject({
      code: 'tool_infra',
      data: { server: 'bad', exitCode: 4, stderr: expect.stringContaining('cannot find my settings') },
    })
  }
  // There is one process of the good one: had a rollout that failed kept it, this would wait for ever.
  await using lease = await servers.lease({ signal })
  expect(lease.catalogues.map(({ server }) => server)).toEqual(['good', 'bad'])
  expect(goodLog.count('start')).toBe(1)
})

test('a failure of an optional server is reported to the model, that of a required one ends the attempt', async () => {
  await using servers = serversOf({ needed: shared(), extra: { ...shared(), required: false } })
  await using lease = await servers.lease({ signal })
  const crashed = await lease.call('extra', call('crash'))
  expect(crashed).toMatchObject({ isError: true, detail: { server: 'extra', generation: 1, attempts: 1 } })
  await expect(lease.call('needed', call('crash'))).rejects.toMatchObject({ code: 'tool_infra' })
})

test.each(['fail', 'tell'] as const)('a restarted server of one rollout, with onRestart %s', async (onRestart) => {
  await using servers = serversOf({ one: { ...pooled(), onRestart } })
  await using lease = await servers.lease({ signal })
  await expect(lease.call('one', call('crash'))).rejects.toMatchObject({ code: 'tool_infra' })
  const after = lease.call('one', call('counter'))
  if (onRestart === 'tell') expect(await after).toMatchObject({ content: '1', detail: { sessionRestarted: true } })
  else {
    await expect(after).rejects.toMatchObject({ code: 'tool_infra', data: { server: 'one', sessionRestarted: true } })
  }
})

test('a failed server is tried again by later rollouts, once for all concurrent ones', async () => {
  using log = new ServerLog()
  await using servers = serversOf({ one: shared(log.mode, 'exit-before-initialize', 'until-start=2') })
  await servers.warm()
  const leases = await Promise.all(Array.from({ length: 8 }, () => servers.lease({ signal })))
  expect(leases.map(({ catalogues }) => catalogues.length)).toEqual(Array.from({ length: 8 }, () => 1))
  expect(log.count('start')).toBe(2)
})

test('a shared server that always crashes is away after reconnect.max, and is reopened after a pause', async () => {
  using log = new ServerLog()
  await using servers = serversOf({ one: { ...shared(log.mode), reconnect: { max: 2, windowMs: 600_000 } } })
  for (let rollout = 0; rollout < 5; rollout += 1) {
    await using lease = await servers.lease({ signal })
    await expect(lease.call('one', call('crash'))).rejects.toMatchObject({
      code: 'tool_infra',
      data: { server: 'one' },
    })
  }
  expect(log.count('start')).toBe(5)
  expect(servers.events.filter(({ name }) => name === 'mcp.away')).toMatchObject([
    { server: 'one', cause: expect.stringContaining('it was reopened 2 times within 600000 ms') },
    { server: 'one' },
  ])
})

test('a server with reconnect.max 0 is not reopened, and no rollout waits for it', async () => {
  using log = new ServerLog()
  await using servers = serversOf({ one: { ...shared(log.mode), reconnect: { max: 0, windowMs: 1 } } })
  await using lease = await servers.lease({ signal })
  await expect(lease.call('one', call('crash'))).rejects.toMatchObject({ code: 'tool_infra' })
  await expect(lease.call('one', call('counter'))).rejects.toThrow('reconnect.max allows none')
  await expect(servers.lease({ signal })).rejects.toThrow('reconnect.max allows none')
  expect(log.count('start')).toBe(1)
})

test('the catalogues are the same array until a list changes', async () => {
  await using servers = serversOf({ one: pooled(), two: shared('changing-list') })
  await using first = await servers.lease({ signal })
  const before = first.catalogues
  expect(first.catalogues).toBe(before)
  await using second = await servers.lease({ signal })
  expect(second.catalogues).toBe(before)
  await first.call('two', call('change_list'))
  await expect.poll(() => first.catalogues).not.toBe(before)
  expect(second.catalogues).toBe(first.catalogues)
  expect(second.catalogues[0]).toBe(before[0])
})

test('a known tool list is not requested from another process', async () => {
  using log = new ServerLog()
  await using servers = serversOf({ one: pooled(log.mode), two: pooled(log.mode) })
  for (let rollout = 0; rollout < 3; rollout += 1) {
    await using lease = await servers.lease({ signal })
    expect(lease.catalogues.map(({ tools }) => tools.length > 0)).toEqual([true, true])
    await lease.call('one', call('counter'))
    await lease.call('two', call('counter'))
  }
  expect([log.count('start'), log.count('initialize'), log.count('list')]).toEqual([6, 6, 2])
})

test('a changed tool list is requested again', async () => {
  using log = new ServerLog()
  await using servers = serversOf({ one: pooled(log.mode, 'changing-list') })
  {
    await using lease = await servers.lease({ signal })
    await lease.call('one', call('change_list'))
    await expect.poll(() => log.count('list')).toBe(2)
  }
  await using lease = await servers.lease({ signal })
  expect(log.count('list')).toBe(3)
  // What the first process was told, this one was not.
  expect(lease.catalogues[0]?.tools.map(({ name }) => name)).not.toContain('extra_0')
})

test('a warm process is used at once, and the next one is started meanwhile', async () => {
  using log = new ServerLog()
  await using servers = serversOf({ one: { ...misbehaving(log.mode), pool: { warm: 1 } } })
  await servers.warm()
  expect(log.count('initialize')).toBe(1)
  await using lease = await servers.lease({ signal })
  await expect.poll(() => log.count('initialize')).toBe(2)
  expect(await lease.call('one', call('counter'))).toMatchObject({ content: '1', detail: { generation: 1 } })
})

test('a process may serve several rollouts, which share its state', async () => {
  using log = new ServerLog()
  await using servers = serversOf({ one: { ...misbehaving(log.mode), pool: { warm: 0, maxUses: 2 } } })
  const counted: unknown[] = []
  for (let rollout = 0; rollout < 4; rollout += 1) {
    await using lease = await servers.lease({ signal })
    counted.push((await lease.call('one', call('counter'))).content)
  }
  expect(counted).toEqual(['1', '2', '1', '2'])
  expect(log.count('start')).toBe(2)
})

test.each(['cancelled', 'too slow'])(
  'a process that may still run a call that was %s serves no other rollout',
  async (end) => {
    using log = new ServerLog()
    const config = { ...misbehaving(log.mode), pool: { warm: 0, maxUses: 10 } }
    await using servers = serversOf({ one: config })
    const leave = new AbortController()
    const sleep = { tool: 'sleep', arguments: { ms: 60_000 } }
    {
      await using lease = await servers.lease({ signal })
      if (end === 'too slow') {
        const answer = await lease.call('one', { ...sleep, signal, timeoutMs: 50 })
        expect(answer).toMatchObject({ isError: true, detail: { timedOut: true } })
      } else {
        const sleeping = lease.call('one', { ...sleep, signal: leave.signal })
        leave.abort(new Error('enough'))
        await expect(sleeping).rejects.toThrow('enough')
      }
    }
    await using next = await servers.lease({ signal })
    await next.call('one', call('counter'))
    expect(log.count('start')).toBe(2)
  },
)

test('thirty rollouts share pools of three and one without exceeding them, and all are served', async () => {
  using log = new ServerLog()
  using smallLog = new ServerLog()
  await using servers = serversOf({
    one: { ...misbehaving(log.mode), pool: { max: 3, maxUses: 100 } },
    // Each rollout needs both: two of them that had one each would wait for ever.
    two: { ...misbehaving(smallLog.mode), pool: { max: 1, maxUses: 100 } },
  })
  const ran = await Promise.all(
    Array.from({ length: 30 }, async () => {
      await using lease = await servers.lease({ signal })
      return (await lease.call('one', call('echo', { message: 'here' }))).content
    }),
  )
  expect(ran).toEqual(Array.from({ length: 30 }, () => 'Echo: here'))
  expect([log.count('start') <= 3, smallLog.count('start')]).toEqual([true, 1])
})
