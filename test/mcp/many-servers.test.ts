/** V6: all servers of an environment together. */
import type { ServerConfig } from 'millrace'
import { calls } from 'millrace/testing'
import { expect, test } from 'vitest'
import { calling, calm } from '../support/tools/session-with.ts'
import type { ServerEvent } from '../../src/tools/mcp/session/server-events.ts'
import { ToolServers } from '../../src/tools/mcp/sharing/tool-servers.ts'
import { misbehaving, ServerLog } from '../fixtures/mcp/misbehaving.ts'
import { failureOf } from '../support/tools/failure-of.ts'
import { notedInOrder } from '../support/tools/noted-calls.ts'
import { environmentWith, startRollouts } from '../support/tools/rollouts-with-servers.ts'
import { survivors } from '../support/tools/processes.ts'

const shared = (...modes: string[]) => ({ ...misbehaving(...modes), sharing: 'shared' }) as const

function serversOf(servers: Record<string, ServerConfig>, maxStarts?: number) {
  const events: ServerEvent[] = []
  const all = new ToolServers({
    servers,
    onEvent: (event) => events.push(event),
    ...(maxStarts !== undefined && { maxStarts }),
  })
  return Object.assign(all, { events })
}

test('three servers start in parallel', async () => {
  using log = new ServerLog()
  const patient = shared(log.mode, 'initialize-after-starts=3')
  await using servers = serversOf({ one: patient, two: patient, three: patient })
  await using lease = await servers.lease({ signal: calm })
  expect(lease.catalogues).toHaveLength(3)
  expect(log.count('start')).toBe(3)
})

test('the number of concurrent starts is limited, however many rollouts ask', async () => {
  using log = new ServerLog()
  const slow = shared(log.mode, 'slow-initialize=200')
  const names = Array.from({ length: 8 }, (_, index) => `server-${index}`)
  await using servers = serversOf(Object.fromEntries(names.map((name) => [name, slow])), 2)
  const leases = await Promise.all(Array.from({ length: 100 }, () => servers.lease({ signal: calm })))
  expect(leases.every(({ catalogues }) => catalogues.length === 8)).toBe(true)
  // A start is over when its list was asked for, which is the last thing it does.
  let starting = 0
  let most = 0
  for (const kind of notedInOrder(log, 'start', 'list')) {
    starting += kind === 'start' ? 1 : -1
    most = Math.max(most, starting)
  }
  expect(log.count('start')).toBe(8)
  expect(most).toBe(2)
})

test('the number of processes is limited by the pool, with a hundred concurrent rollouts', async () => {
  using log = new ServerLog()
  const config = { ...misbehaving(log.mode), pool: { max: 3, maxUses: 100 } }
  const environment = environmentWith({ mis: config }, { count: 100 })
  await using run = await startRollouts(environment, ({ messages }) =>
    messages.at(-1)?.role === 'tool' ? 'done' : calls({ counter: {} }),
  )
  const records = await Array.fromAsync(run.evaluation)
  expect(records.filter(({ outcome }) => outcome === 'completed')).toHaveLength(100)
  expect(log.count('start')).toBeLessThanOrEqual(3)
  expect(log.count('call')).toBe(100)
  expect(survivors(log)).toEqual([])
})

test('failing servers do not affect the others; failures are reported by name, in the given order', async () => {
  const optional = { required: false }
  await using servers = serversOf({
    broken: { ...shared('exit-before-initialize=4'), ...optional },
    first: shared('slow-initialize=200'),
    refusing: { ...shared('initialize-error'), ...optional },
    second: shared(),
    missing: { command: 'no-such-command-anywhere', sharing: 'shared', ...optional },
  })
  await using lease = await servers.lease({ signal: calm })
  expect(lease.catalogues.map(({ server }) => server)).toEqual(['first', 'second'])
  expect(lease.failures.map(({ server, error }) => [server, error.data['server'], error.code])).toEqual([
    ['broken', 'broken', 'tool_infra'],
    ['refusing', 'refusing', 'tool_infra'],
    ['missing', 'missing', 'tool_infra'],
  ])
  expect(lease.failures.map(({ error }) => error.rawMessage)).toEqual([
    expect.stringContaining('code 4'),
    expect.stringContaining('no licence for this machine'),
    expect.stringContaining("there is no command 'no-such-command-anywhere'"),
  ])
  expect(await lease.call('second', calling('echo'))).toMatchObject({ content: 'Echo: hi' })
})

test('a rollout without its required server is an infrastructure failure and has no reward', async () => {
  const environment = environmentWith({ good: shared(), bad: shared('exit-before-initialize=4') }, { count: 3 })
  await using run = await startRollouts(environment, () => 'done')
  const records = await Array.fromAsync(run.evaluation)
  expect(records).toHaveLength(3)
  for (const record of records) {
    expect(record).toMatchObject({ outcome: 'tool_infra_error', reward: null, error: { code: 'tool_infra' } })
    expect(record.error?.message).toContain("'bad'")
  }
  expect(await run.evaluation.summary()).toMatchObject({ scored: 0, rollouts: 3 })
})

test('a rollout without an optional server continues, and the missing server is recorded', async () => {
  const bad = { ...shared('exit-before-initialize=4'), required: false }
  const environment = environmentWith({ good: shared(), bad }, { count: 3 })
  await using run = await startRollouts(environment, () => 'done')
  const records = await Array.fromAsync(run.evaluation)
  expect(records.map(({ outcome, reward }) => [outcome, reward])).toEqual(records.map(() => ['completed', 1]))
  using reader = await run.reader()
  const missing = Array.from(reader.events('mcp.missing'))
  expect(missing.map(({ rollout }) => String(rollout)).toSorted()).toEqual(['0-0', '1-0', '2-0'])
  for (const { data } of missing) expect(data).toEqual({ server: 'bad', cause: expect.stringContaining('code 4') })
})

test('a server that never lists its tools is waited for until the start timeout', async () => {
  using log = new ServerLog()
  const hanging = { ...shared(log.mode, 'list-hang'), required: false, startTimeoutMs: 1_500 }
  await using servers = serversOf({ good: shared(), hanging })
  await using lease = await servers.lease({ signal: calm })
  expect(lease.catalogues.map(({ server }) => server)).toEqual(['good'])
  expect(lease.failures.map(({ server, error }) => [server, error.rawMessage])).toEqual([
    ['hanging', expect.stringContaining('did not initialise and list its tools within 1500 ms')],
  ])
  expect(log.count('list')).toBe(1)
  expect(survivors(log)).toEqual([])
})

/** Lists one tool, and answers its calls with what is given. */
function answering(answer: object): ServerConfig {
  const source = `
    const { createInterface } = require('node:readline')
    const results = {
      initialize: { protocolVersion: '2025-06-18', capabilities: { tools: {} }, serverInfo: { name: 'odd', version: '1' } },
      'tools/list': { tools: [{ name: 'odd', inputSchema: { type: 'object' } }] },
    }
    createInterface({ input: process.stdin }).on('line', (line) => {
      const { id, method } = JSON.parse(line)
      if (id === undefined) return
      const answer = method === 'tools/call' ? ${JSON.stringify(answer)} : { result: results[method] }
      console.log(JSON.stringify({ jsonrpc: '2.0', id, ...answer }))
    })`
  return { command: process.execPath, args: ['-e', source], sharing: 'shared', required: false }
}

test('an error reply is never taken as a result', async () => {
  const failed = new Error('an error as some servers send it')
  await using servers = serversOf({
    rpc: answering({ error: { code: -32_603, message: 'it broke inside' } }),
    silent: answering({ error: { code: -32_000, message: '' } }),
    none: answering({ result: null }),
    other: answering({ result: { name: failed.name, message: failed.message, stack: failed.stack } }),
    broken: { ...shared('exit-before-initialize'), required: false },
  })
  await using lease = await servers.lease({ signal: calm })
  // No entry of a list stands for a failure.
  for (const { tools } of lease.catalogues) expect(tools.map(({ name }) => name)).toEqual(['odd'])
  for (const server of ['rpc', 'silent', 'none', 'other', 'broken']) {
    const answer = await lease.call(server, calling('odd', {}))
    expect([server, answer.isError, typeof answer.content]).toEqual([server, true, 'string'])
    expect(answer.content, server).not.toBe('')
    expect(answer.structured, server).toBeUndefined()
  }
})

test('an error reply fails the call of a rollout, and the rollout too if the server is required', async () => {
  const other = answering({ result: { oops: true } })
  const script = ({ messages }: { messages: readonly { role: string }[] }) =>
    messages.at(-1)?.role === 'tool' ? 'done' : calls({ odd: {} })
  await using optional = await startRollouts(environmentWith({ other }), script)
  expect(await Array.fromAsync(optional.evaluation)).toMatchObject([{ outcome: 'completed', toolErrors: 1 }])
  using reader = await optional.reader()
  expect(reader.nodes('0-0', 1).find(({ tool }) => tool)?.tool).toMatchObject({ name: 'odd', status: 'failed' })
  await using required = await startRollouts(environmentWith({ other: { ...other, required: true } }), script)
  expect(await Array.fromAsync(required.evaluation)).toMatchObject([{ outcome: 'tool_infra_error', reward: null }])
  const servers = serversOf({ needed: { ...other, required: true } })
  await using _closed = servers
  await using lease = await servers.lease({ signal: calm })
  expect(await failureOf(lease.call('needed', calling('odd', {})))).toMatchObject({ code: 'tool_infra' })
})
