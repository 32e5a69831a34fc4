import { setTimeout } from 'node:timers/promises'
import { inspect } from 'node:util'
import { expect, test } from 'vitest'
import { HttpMcpServer } from '../../../../test/support/tools/http-mcp-server.ts'
import { misbehaving, ServerLog } from '../../../../test/fixtures/mcp/misbehaving.ts'
import { MillraceError } from '../../../errors/index.ts'
import { activeResources, leftSince } from '../../../../test/support/kit/active-resources.ts'
import { readServerConfigs } from '../config/read-server-configs.ts'
import type { ServerConfig } from '../config/server-config.ts'
import type { ServerEvent } from '../session/server-events.ts'
import { rolloutsWaiting } from './rollout-lease.ts'
import { ToolServers } from './tool-servers.ts'

const { signal } = new AbortController()

const shared = (...modes: string[]) => ({ ...misbehaving(...modes), sharing: 'shared' }) as const
const pooled = (...modes: string[]) => ({ ...misbehaving(...modes), pool: { warm: 0 } })

function serversOf(servers: Record<string, ServerConfig>, maxStarts = 8) {
  const events: ServerEvent[] = []
  const all = new ToolServers({ servers, maxStarts, onEvent: (event) => events.push(event) })
  return Object.assign(all, { events })
}

const call = (tool: string, args: Record<string, unknown> = {}) => ({ tool, arguments: args, signal })

test('V5.1 a rollout with two servers and four calls starts, initialises and lists each once', async () => {
  using log = new ServerLog()
  await using servers = serversOf({ one: shared(log.mode), two: shared(log.mode) })
  await servers.warm()
  await using lease = await servers.lease({ signal })
  const answers = await Promise.all(
    ['one', 'two', 'one', 'two'].map((server, index) => lease.call(server, call('echo', { message: index }))),
  )
  expect(answers.map(({ content }) => content)).toEqual(['Echo: 0', 'Echo: 1', 'Echo: 2', 'Echo: 3'])
  expect([log.count('start'), log.count('initialize'), log.count('list')]).toEqual([2, 2, 2])
})

test('V6.2 the tools of other servers stay available after a failure, which names its server', async () => {
  const failing = (code: number) => ({ ...shared(`exit-before-initialize=${code}`), required: false })
  await using servers = serversOf({ one: failing(4), two: shared(), three: failing(5), four: shared() })
  await using lease = await servers.lease({ signal })
  expect(lease.catalogues.map(({ server }) => server)).toEqual(['two', 'four'])
  expect(
    lease.failures.map(({ server, error }) => [server, error.code, error.data['server'], error.data['exitCode']]),
  ).toEqual([
    ['one', 'tool_infra', 'one', 4],
    ['three', 'tool_infra', 'three', 5],
  ])
})

test('V6.5 an error is never returned as an answer or a list', async () => {
  await using servers = serversOf({ bad: { ...shared('exit-before-initialize'), required: false }, good: shared() })
  await using lease = await servers.lease({ signal })
  expect(lease.catalogues.every(({ tools }) => Array.isArray(tools))).toBe(true)
  const answer = await lease.call('bad', call('echo', { message: 'a' }))
  expect(answer).toMatchObject({ isError: true, content: expect.stringContaining('"bad" is not available') })
  expect(answer.content).not.toBeInstanceOf(Error)
  await expect(lease.call('god', call('echo'))).rejects.toThrow('there is no tool server "god"; did you mean "good"?')
})

test('a cancelled rollout stops waiting at once, and other rollouts keep the server', async () => {
  await using servers = serversOf({ one: shared('slow-initialize=100') })
  const leaving = new AbortController()
  const left = servers.lease({ signal: leaving.signal })
  const stayed = servers.lease({ signal })
  leaving.abort(new MillraceError('cancelled', 'not wanted'))
  await expect(left).rejects.toMatchObject({ code: 'cancelled' })
  expect((await stayed).catalogues).toHaveLength(1)
})

test('V2.4 closing twice has one effect; waiting leases fail, and no resource is left', async () => {
  const before = activeResources()
  using log = new ServerLog()
  const servers = serversOf({
    one: shared(log.mode),
    two: pooled(log.mode),
    three: shared(log.mode, 'hang-initialize'),
  })
  const waiting = servers.lease({ signal })
  await expect.poll(() => log.count('initialize')).toBe(3)
  const closing = servers.close()
  expect(servers.close()).toBe(closing)
  await expect(waiting).rejects.toMatchObject({ code: 'closed' })
  await closing
  const alive = log.entries('start').filter(({ pid }) => isAlive(pid))
  expect(alive).toEqual([])
  await expect(servers.lease({ signal })).rejects.toMatchObject({ code: 'closed' })
  await servers[Symbol.asyncDispose]()
  expect(await leftSince(before)).toEqual([])
})

test('calls after the end of a lease, and on closed servers, are refused', async () => {
  const servers = serversOf({ one: shared() })
  const lease = await servers.lease({ signal })
  const other = await servers.lease({ signal })
  const giving = lease[Symbol.asyncDispose]()
  expect(lease[Symbol.asyncDispose]()).toBe(giving)
  await giving
  await expect(lease.call('one', call('counter'))).rejects.toMatchObject({ code: 'closed' })
  await servers.close()
  await expect(other.call('one', call('counter'))).rejects.toMatchObject({ code: 'closed' })
  await other[Symbol.asyncDispose]()
})

test('an invalid sharing option is refused before any start', () => {
  expect(() => serversOf({ one: { ...misbehaving(), sharing: 'session' } })).toThrow(/"one" is a command.*"pooled"/)
  expect(() => serversOf({ one: { url: 'http://127.0.0.1:1', sharing: 'pooled' } })).toThrow(
    /"one" is a URL.*"session"/,
  )
})

test('no rollout starts while a name in allow or deny matches no tool', async () => {
  const config = { ...pooled(), prefix: 'mis_', allow: ['echo', 'mis_add'], deny: ['slep'], required: false }
  await using servers = serversOf({ one: config })
  for (let rollout = 0; rollout < 2; rollout += 1) {
    const error: unknown = await servers.lease({ signal }).catch((thrown: unknown) => thrown)
    expect(error).toMatchObject({ code: 'config_invalid', data: { server: 'one', tool: 'mis_add' } })
    expect(String(error)).toContain(
      'the tool server "one": "allow" names "mis_add", which the server does not list; did you mean "add"?; ' +
        '"deny" names "slep", which the server does not list; did you mean "sleep"? (tools go by their names on the server',
    )
  }
})

test('a later change of the list is reported once, and stops no rollout', async () => {
  using log = new ServerLog()
  await using servers = serversOf({ one: { ...shared(log.mode, 'list-per-start'), deny: ['only_in_start_1'] } })
  await using running = await servers.lease({ signal })
  await expect(running.call('one', call('crash'))).rejects.toMatchObject({ code: 'tool_infra' })
  // The second process has another list.
  expect(await running.call('one', call('counter'))).toMatchObject({ content: '1' })
  for (let rollout = 0; rollout < 2; rollout += 1) {
    await using lease = await servers.lease({ signal })
    expect(lease.catalogues[0]?.tools.at(-1)?.name).toBe('only_in_start_2')
  }
  expect(servers.events.filter(({ name }) => name === 'mcp.names_unlisted')).toEqual([
    { name: 'mcp.names_unlisted', server: 'one', names: ['only_in_start_1'] },
  ])
})

test('process events go to the rollout that holds the process', async () => {
  await using servers = serversOf({ one: { ...pooled(), onRestart: 'tell' }, two: shared() })
  const told: ServerEvent[] = []
  await using lease = await servers.lease({ signal, onEvent: (event) => told.push(event) })
  for (const server of ['one', 'two']) {
    await expect(lease.call(server, call('crash'))).rejects.toMatchObject({ code: 'tool_infra' })
    await lease.call(server, call('counter'))
  }
  const reconnects = (events: readonly ServerEvent[]) =>
    events.flatMap(({ name, server }) => (name === 'mcp.reconnect' ? [server] : []))
  expect([reconnects(told), reconnects(servers.events)]).toEqual([['one'], ['two']])
})

test.each([502, 503, 504])('a proxy that answers %i for its server means that the server is away', async (status) => {
  await using server = await HttpMcpServer.start()
  const web = { url: server.url, sharing: 'shared', retry: 'always' } as const
  await using servers = serversOf({ web })
  await using lease = await servers.lease({ signal })
  server.gatewayStatus = status
  const waiting = lease.call('web', call('echo', { message: 'hi' }))
  await expect.poll(() => servers.status()).toMatchObject([{ server: 'web', state: 'away', waiting: 1 }])
  server.gatewayStatus = undefined
  expect(await waiting).toMatchObject({ content: 'hi in session-2' })
  expect(servers.status()).toEqual([{ server: 'web', state: 'open', waiting: 0, awayMs: 0 }])
})

test('a call has its full timeout after its server was reopened', async () => {
  const first = await HttpMcpServer.start()
  const { url, port } = first
  const config = { url, sharing: 'shared', callTimeoutMs: 400 } as const
  await using servers = serversOf({ web: config })
  await using lease = await servers.lease({ signal })
  await first.close()
  const started = Promise.withResolvers<void>()
  await using _again = await HttpMcpServer.start({ port, ready: started.promise })
  const waits: string[] = []
  const onAway = ({ rawMessage }: MillraceError) => {
    waits.push(rawMessage)
    return () => waits.push('over')
  }
  const answer = lease.call('web', { ...call('look', { message: 'hi' }), onAway })
  await setTimeout(2 * config.callTimeoutMs)
  started.resolve()
  expect(await answer).toMatchObject({ content: 'hi in session-1', isError: false })
  // It was never away, only slow.
  expect(waits).toEqual([expect.stringMatching(/^server 'web' is being reopened: /), 'over'])
  expect(servers.events.filter(({ name }) => name === 'mcp.away')).toEqual([])
})

test('a rollout that waits for two servers counts once', async () => {
  const [one, two] = [await HttpMcpServer.start(), await HttpMcpServer.start()]
  await using servers = serversOf({
    one: { url: one.url, sharing: 'shared' },
    two: { url: two.url, sharing: 'shared' },
    three: shared(),
  })
  await using lease = await servers.lease({ signal })
  expect(rolloutsWaiting(servers.status())).toBe(0)
  await Promise.all([one.close(), two.close()])
  const left = new AbortController()
  const waiting = ['one', 'two'].map((server) => lease.call(server, { ...call('look'), signal: left.signal }))
  const ended = Promise.allSettled(waiting)
  const away = { state: 'away', waiting: 1 }
  await expect.poll(() => servers.status()).toMatchObject([away, away, { state: 'open', waiting: 0 }])
  expect(rolloutsWaiting(servers.status())).toBe(1)
  left.abort()
  await ended
})

test('a call that waits for a server that is away fails when the servers close', async () => {
  const server = await HttpMcpServer.start()
  await using servers = serversOf({ web: { url: server.url, sharing: 'shared' } })
  await using lease = await servers.lease({ signal })
  await server.close()
  const waiting = lease.call('web', call('look')).catch((error: unknown) => error)
  await expect.poll(() => servers.isAwaited).toBe(true)
  const unstarted = servers.available(signal)
  expect(servers.status()).toMatchObject([{ state: 'away', waiting: 2 }])
  await servers.close()
  expect(await waiting).toMatchObject({ code: 'closed' })
  // The lease of the rollout that starts now says why it fails.
  await unstarted
  expect(servers.status()).toMatchObject([{ waiting: 0 }])
})

test('values of variables are not in the errors and events of a server', async () => {
  const entry = { command: 'sh', args: ['-c', 'echo "no such key: $0, $MINE" >&2; exit 3', '${TOKEN}'] }
  for (const sharing of ['shared', 'pooled']) {
    const given = { ...entry, env: { MINE: 'm-12345678' }, sharing, required: false }
    await using servers = serversOf(readServerConfigs({ one: given }, 'mcp.json', { TOKEN: 'tok-98765' }))
    await using lease = await servers.lease({ signal })
    expect(lease.failures[0]?.error.data['stderr']).toBe('no such key: [redacted], [redacted]\n')
    expect(servers.events).toMatchObject([{ name: 'mcp.open', ok: false }])
    expect(inspect([lease.failures, servers.events], { depth: null })).not.toMatch(/tok-98765|m-12345678/)
  }
})

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}
