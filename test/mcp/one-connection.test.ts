/** V5: one connection lists and calls, for as long as there are calls. */
import type { Message } from 'millrace'
import { calls } from 'millrace/testing'
import { expect, test } from 'vitest'
import { calling, calm, sessionWith } from '../support/tools/session-with.ts'
import { ToolServers } from '../../src/tools/mcp/sharing/tool-servers.ts'
import { misbehaving, ServerLog } from '../fixtures/mcp/misbehaving.ts'
import { environmentWith, startRollouts } from '../support/tools/rollouts-with-servers.ts'

const names = ['one', 'two', 'three'] as const

/** A model that calls the given tools, one in each turn. */
const modelCalling =
  (...tools: string[]) =>
  ({ messages }: { messages: readonly Message[] }) => {
    const tool = tools[messages.filter(({ role }) => role === 'tool').length]
    return tool === undefined ? 'done' : calls({ [tool]: {} })
  }

const counts = (log: ServerLog) => ({
  starts: log.count('start'),
  initialised: log.count('initialize'),
  lists: log.count('list'),
  calls: log.count('call'),
})

test('a rollout with three servers and thirty calls needs three starts, initialisations and lists', async () => {
  using log = new ServerLog()
  const server = (prefix: string) => ({ ...misbehaving(log.mode), prefix, pool: { warm: 0 } })
  const environment = environmentWith(Object.fromEntries(names.map((name) => [name, server(`${name}_`)])))
  const tools = Array.from({ length: 30 }, (_, index) => `${names[index % 3]}_counter`)
  await using run = await startRollouts(environment, modelCalling(...tools))
  const [record] = await Array.fromAsync(run.evaluation)
  expect(record).toMatchObject({ outcome: 'completed', toolCalls: 30, toolErrors: 0 })
  const answers = record?.messages.filter(({ role }) => role === 'tool').map(({ content }) => content)
  // Each has counted its own ten: it was the same process for all of them.
  expect(answers).toEqual(Array.from({ length: 30 }, (_, index) => String(Math.floor(index / 3) + 1)))
  expect(counts(log)).toEqual({ starts: 3, initialised: 3, lists: 3, calls: 30 })
})

test('a restarted server needs one more start, initialisation and list', async () => {
  using log = new ServerLog()
  const config = { ...misbehaving(log.mode, 'crash-mid-call=5', 'until-start=2'), retry: 'always' } as const
  const environment = environmentWith({ one: { ...config, sharing: 'shared' } })
  await using run = await startRollouts(environment, modelCalling(...Array.from({ length: 10 }, () => 'counter')))
  expect(await Array.fromAsync(run.evaluation)).toMatchObject([{ outcome: 'completed', toolCalls: 10 }])
  expect(counts(log)).toEqual({ starts: 2, initialised: 2, lists: 2, calls: 11 })
})

test('tools are listed once for processes with the same command, variables and version', async () => {
  using log = new ServerLog()
  const environment = environmentWith({ one: { ...misbehaving(log.mode), pool: { warm: 0 } } }, { count: 4 })
  await using run = await startRollouts(environment, modelCalling('counter'), { concurrency: 1 })
  const records = await Array.fromAsync(run.evaluation)
  expect(records.map(({ toolErrors }) => toolErrors)).toEqual([0, 0, 0, 0])
  expect(counts(log)).toEqual({ starts: 4, initialised: 4, lists: 1, calls: 4 })
})

test('a list of several pages is read to its end, once', async () => {
  using log = new ServerLog()
  const environment = environmentWith({ one: { ...misbehaving(log.mode, 'paged-list=45'), sharing: 'shared' } })
  const offered: string[] = []
  await using run = await startRollouts(environment, ({ tools }) => {
    offered.push(...(tools ?? []).map((tool) => tool.function.name))
    return 'done'
  })
  await Array.fromAsync(run.evaluation)
  expect(offered.filter((name) => name.startsWith('paged_'))).toEqual(
    Array.from({ length: 45 }, (_, index) => `paged_${index}`),
  )
  const pages = log.entries('list').map(({ detail }) => Number(detail))
  expect(pages).toEqual(Array.from({ length: Math.ceil(offered.length / 10) }, (_, page) => page * 10))
})

test('tools are listed again after the server reports a change, for later rollouts', async () => {
  using log = new ServerLog()
  await using made = sessionWith([log.mode, 'changing-list'])
  const { session, events } = made
  const first = await session.open()
  await session.call(calling('change_list'))
  await expect.poll(() => session.catalogue?.tools.map(({ name }) => name)).toContain('extra_0')
  expect(session.catalogue?.digest).not.toBe(first.digest)
  expect(events.at(-1)).toMatchObject({ name: 'mcp.tools_changed', server: 'mis', added: ['extra_0'], removed: [] })
  expect([log.count('start'), log.count('list')]).toEqual([1, 2])
  // And can be called.
  expect((await session.call(calling('extra_0'))).content).not.toContain('has no tool')

  const servers = new ToolServers({
    servers: { one: { ...misbehaving('changing-list'), sharing: 'shared' } },
  })
  await using _closed = servers
  await using before = await servers.lease({ signal: calm })
  await before.call('one', calling('change_list'))
  await expect.poll(() => before.catalogues[0]?.tools.map(({ name }) => name)).toContain('extra_0')
  await using after = await servers.lease({ signal: calm })
  expect(after.catalogues[0]?.tools.map(({ name }) => name)).toContain('extra_0')
})

const median = (values: readonly number[]): number => values.toSorted((a, b) => a - b)[values.length >> 1] ?? Number.NaN

async function timed(work: () => Promise<unknown>): Promise<number> {
  const startedAt = performance.now()
  await work()
  return performance.now() - startedAt
}

test('a session from a warm pool is at least ten times faster than a new process', async () => {
  const rounds = 7
  const cold: number[] = []
  const warm: number[] = []
  for (const [pool, costs] of [
    [{ warm: 0 }, cold],
    [{ warm: 2 }, warm],
  ] as const) {
    using log = new ServerLog()
    await using servers = new ToolServers({ servers: { one: { ...misbehaving(log.mode), pool } } })
    await servers.warm()
    for (let round = 0; round < rounds; round += 1) {
      // The next one is ready: that is what a pool is warm for.
      if (pool.warm > 0) await expect.poll(() => log.count('initialize')).toBe(round + 2)
      const startedAt = performance.now()
      await using lease = await servers.lease({ signal: calm })
      costs.push(performance.now() - startedAt)
      expect(await lease.call('one', calling('counter'))).toMatchObject({ content: '1' })
    }
  }
  expect(median(cold) / median(warm)).toBeGreaterThan(10)
})

test('a call on an open session is at least fifty times faster than a new process', async () => {
  await using made = sessionWith([])
  await made.session.open()
  const kept: number[] = []
  for (let call = 0; call < 300; call += 1) kept.push(await timed(() => made.session.call(calling('echo'))))
  const spawned: number[] = []
  for (let call = 0; call < 5; call += 1) {
    spawned.push(
      await timed(async () => {
        await using own = sessionWith([])
        await own.session.call(calling('echo'))
      }),
    )
  }
  expect(made.session.generation).toBe(1)
  // Over a thousand times, as measured; much less would still show that nothing is started.
  expect(median(spawned) / median(kept)).toBeGreaterThan(50)
})
