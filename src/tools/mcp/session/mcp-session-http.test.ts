import { getEventListeners } from 'node:events'
import { expect, test } from 'vitest'
import { MillraceError } from '../../../errors/index.ts'
import { AbortSource, Semaphore } from '../../../kit/index.ts'
import { activeResources, leftSince } from '../../../../test/support/kit/active-resources.ts'
import { HttpMcpServer } from '../../../../test/support/tools/http-mcp-server.ts'
import { calling } from '../../../../test/support/tools/session-with.ts'
import { McpSession } from './mcp-session.ts'
import type { HttpServerConfig, ServerOptions } from '../config/server-config.ts'
import type { ServerEvent } from './server-events.ts'

function sessionOn(url: string, options: Partial<HttpServerConfig> & ServerOptions = {}) {
  const events: ServerEvent[] = []
  const config = { url, ...options }
  const session = new McpSession({
    name: 'web',
    config,
    starts: new Semaphore(1),
    onEvent: (event) => events.push(event),
  })
  return { session, events, [Symbol.asyncDispose]: () => session.close() }
}

const thrown = (work: Promise<unknown>): Promise<MillraceError> =>
  work.then(
    () => new MillraceError('internal', 'it did not throw'),
    (reason: unknown) => MillraceError.from(reason, 'internal'),
  )

test.each(['stream', 'json'] as const)('calls over HTTP, answered as %s, and ends the session', async (answers) => {
  const before = activeResources()
  {
    await using server = await HttpMcpServer.start({ answers, authorization: 'Bearer sesame-open' })
    await using made = sessionOn(server.url, { headers: { authorization: 'Bearer sesame-open' } })
    const answer = await made.session.call(calling('echo'))
    expect(answer).toMatchObject({ content: 'hi in session-1', detail: { generation: 1, attempts: 1 } })
    await expect.poll(() => server.streams).toBe(1)
    await made.session.close()
    expect(server.ended).toEqual(['session-1'])
  }
  expect(await leftSince(before)).toEqual([])
})

test('a session lost by the server is reopened, and a call that did not run is repeated', async () => {
  await using server = await HttpMcpServer.start()
  await using made = sessionOn(server.url)
  const { session, events } = made
  await session.open()
  server.forget()
  const answers = await Promise.all(Array.from({ length: 20 }, () => session.call(calling('echo'))))
  expect(answers.map(({ content }) => content)).toEqual(answers.map(() => 'hi in session-2'))
  // The server was told nothing before, so that there is nothing that it forgot.
  expect(answers.filter(({ detail }) => detail.sessionRestarted)).toEqual([])
  expect(server.sessions).toBe(1)
  expect(events.slice(1)).toMatchObject([{ name: 'mcp.reconnect', ok: true, generation: 2 }])
})

test('after a stream without an answer, the call may have run, and the session continues', async () => {
  await using server = await HttpMcpServer.start()
  await using made = sessionOn(server.url)
  const error = await thrown(made.session.call(calling('cut')))
  expect(error).toMatchObject({
    code: 'tool_infra',
    data: { server: 'web', tool: 'cut', mayHaveRun: true, generation: 1, attempt: 1 },
  })
  expect(error.rawMessage).toContain("server 'web' aborted 'cut' without an answer")
  expect(await made.session.call(calling('echo'))).toMatchObject({ content: 'hi in session-1' })
  expect(server.ended).toEqual([])
})

test('a call whose socket was reset is repeated in the same session if that is safe', async () => {
  await using server = await HttpMcpServer.start()
  await using made = sessionOn(server.url)
  const answer = await made.session.call(calling('flaky'))
  expect(answer).toMatchObject({ content: 'in session-1', detail: { generation: 1, attempts: 2 } })
})

test('if the repeat finds the session lost, the call is made in the next session', async () => {
  await using server = await HttpMcpServer.start()
  await using made = sessionOn(server.url)
  const answer = await made.session.call(calling('flaky', { forget: true }))
  expect(answer).toMatchObject({ content: 'in session-2', detail: { generation: 2, attempts: 3 } })
})

test('a call that may have run at the first attempt stays so after the second', async () => {
  await using server = await HttpMcpServer.start()
  await using made = sessionOn(server.url)
  const error = await thrown(made.session.call(calling('flaky', { status: 401 })))
  expect(error.data).toMatchObject({ attempt: 2, mayHaveRun: true })
  expect(error.rawMessage).toMatch(/HTTP 401: no\. That was attempt 2, after: .+\. The call may have run\.$/)
})

test('calls on the previous session continue after a new session is opened', async () => {
  await using server = await HttpMcpServer.start()
  await using made = sessionOn(server.url)
  const { session } = made
  const patient = new AbortSource()
  const hanging = session.call({ ...calling('hang'), signal: patient.signal })
  await expect.poll(() => server.hanging).toBe(1)
  server.forget()
  expect(await session.call(calling('echo'))).toMatchObject({ content: 'hi in session-2' })
  expect(server.hanging).toBe(1)
  patient.abort('done')
  await expect(hanging).rejects.toBe('done')
  await expect.poll(() => server.ended).toEqual(['session-1'])
})

test('an aborted call is not repeated when a new session is opened', async () => {
  await using server = await HttpMcpServer.start({ isDeafToGoodbyes: true })
  await using made = sessionOn(server.url)
  const { session } = made
  const caller = new AbortSource()
  const unwanted = session.call({ ...calling('disown'), signal: caller.signal })
  await expect.poll(() => server.calls).toEqual(['disown'])
  server.forget()
  await session.call(calling('echo'))
  server.disown()
  // It is on its way to the next session, and waits for the end of the one before.
  await expect.poll(() => server.ended).toEqual(['session-1'])
  caller.abort('left')
  await expect(unwanted).rejects.toBe('left')
  expect(server.calls).toEqual(['disown', 'echo'])
})

test('close ends the requests of all calls, also those on the previous session', async () => {
  await using server = await HttpMcpServer.start()
  await using made = sessionOn(server.url)
  const { session } = made
  const calls = [thrown(session.call(calling('hang')))]
  await expect.poll(() => server.hanging).toBe(1)
  server.forget()
  await session.call(calling('echo'))
  calls.push(thrown(session.call(calling('hang'))))
  await expect.poll(() => server.hanging).toBe(2)
  await session.close()
  expect((await Promise.all(calls)).map(({ code }) => code)).toEqual(['closed', 'closed'])
  await expect.poll(() => server.hanging).toBe(0)
})

test('a stream left open after the answer is ended; an ended stream leaves a reusable socket', async () => {
  await using server = await HttpMcpServer.start()
  await using made = sessionOn(server.url)
  const { session } = made
  await session.call(calling('echo'))
  const { sockets } = server
  for (let call = 0; call < 20; call += 1) await session.call(calling('echo'))
  expect(server.sockets).toBe(sockets)
  const answers = await Promise.all(Array.from({ length: 10 }, () => session.call(calling('linger'))))
  expect(answers.every(({ content }) => content === 'done')).toBe(true)
  await expect.poll(() => server.hanging).toBe(0)
  expect(await session.call(calling('echo'))).toMatchObject({ detail: { generation: 1 } })
})

test('a busy server is asked again once, after its delay, if the call has time left', async () => {
  await using server = await HttpMcpServer.start()
  await using made = sessionOn(server.url)
  const { session } = made
  const patient = await session.call(calling('overload', { once: true, message: 'hi' }))
  expect(patient).toMatchObject({ content: 'hi in session-1', detail: { generation: 1, attempts: 2 } })
  server.calls.length = 0
  const twice = await thrown(session.call(calling('overload')))
  expect(twice).toMatchObject({ code: 'tool_infra', data: { mayHaveRun: false, attempt: 2 } })
  expect(twice.rawMessage).toContain('slow down')
  expect(server.calls).toEqual(['overload', 'overload'])
  const hopeless = await thrown(session.call(calling('overload', { after: 3600 })))
  expect(hopeless.data).toMatchObject({ mayHaveRun: false, attempt: 1 })
  expect(server.calls).toHaveLength(3)
  expect(await session.call(calling('echo'))).toMatchObject({ detail: { generation: 1 } })
})

test('a caller that aborts or closes does not wait for the delay of a busy server', async () => {
  await using server = await HttpMcpServer.start()
  const before = activeResources()
  {
    await using made = sessionOn(server.url)
    const caller = new AbortSource()
    const busy = calling('overload', { after: 60 })
    const left = made.session.call({ ...busy, signal: caller.signal })
    const closed = thrown(made.session.call(busy))
    await expect.poll(() => server.calls.length).toBe(2)
    // By the time of its answer those of the others are there.
    await made.session.call(calling('echo'))
    caller.abort('left')
    await expect(left).rejects.toBe('left')
    await made.session.close()
    expect((await closed).code).toBe('closed')
  }
  expect((await leftSince(before)).filter((left) => left.startsWith('Timeout'))).toEqual([])
})

test('the error for a vanished server names both failures', async () => {
  const server = await HttpMcpServer.start()
  await using made = sessionOn(server.url)
  await made.session.open()
  await server.close()
  const error = await thrown(made.session.call(calling('look')))
  expect(error.rawMessage).toMatch(/^Reconnect to 'web' also failed: .*ECONNREFUSED/)
  expect(error.data).toMatchObject({ server: 'web', tool: 'look', generation: 1 })
  // On a socket that was not known to be closed there was one more.
  expect(error.data['attempt']).toBeGreaterThan(1)
})

test('secret headers are not in errors', async () => {
  await using server = await HttpMcpServer.start({ authorization: 'Bearer right' })
  await using made = sessionOn(server.url, { headers: { Authorization: 'Bearer wrong-and-secret' } })
  const error = await thrown(made.session.open())
  expect(error.rawMessage).toContain('who is [redacted]?')
  const told = `${error.stack} ${JSON.stringify(error.toWire())} ${String((error.cause as Error).stack)} ${JSON.stringify(made.events)}`
  expect(told).not.toContain('wrong-and-secret')
})

test.each([
  [401, '', 'HTTP 401: without a message. Check the key in "headers"'],
  [404, 'nothing here', 'HTTP 404: nothing here. Check the path in "url", which is often /mcp'],
  [502, '', 'HTTP 502: without a message'],
])('the error for status %d names the status', async (status, page, said) => {
  await using server = await HttpMcpServer.start({ refuses: { status, page } })
  await using made = sessionOn(server.url)
  expect((await thrown(made.session.open())).rawMessage).toBe(`server 'web' could not be opened: ${said}`)
})

test('the error quotes the start of a long page, and no part of a secret at the cut', async () => {
  const secret = 'a-very-long-key-of-ours'
  const page = `${'x'.repeat(480)}${secret}${'x'.repeat(10_000)}`
  await using server = await HttpMcpServer.start({ refuses: { status: 500, page } })
  await using made = sessionOn(server.url, { headers: { authorization: `Bearer ${secret}` } })
  const { rawMessage } = await thrown(made.session.open())
  expect(rawMessage).toContain('HTTP 500: xxx')
  expect(rawMessage.length).toBeLessThan(1_000)
  expect(rawMessage).not.toContain('a-very')
})

test('calls that time out or are aborted release their connections and listeners', async () => {
  await using server = await HttpMcpServer.start()
  await using made = sessionOn(server.url)
  const { session } = made
  await session.open()
  const shared = new AbortController()
  const calls = Array.from({ length: 50 }, () => thrown(session.call({ ...calling('hang'), signal: shared.signal })))
  await expect.poll(() => server.hanging).toBe(50)
  shared.abort(new MillraceError('cancelled', 'enough'))
  expect((await Promise.all(calls)).map(({ code }) => code)).toEqual(calls.map(() => 'cancelled'))
  expect(getEventListeners(shared.signal, 'abort')).toEqual([])
  const late = await session.call({ ...calling('hang'), timeoutMs: 20 })
  expect(late).toMatchObject({ isError: true, content: expect.stringContaining('within 20 ms') })
  await expect.poll(() => server.hanging).toBe(0)
  await expect.poll(() => server.cancelled.length).toBe(51)
})

test('a redirect is followed', async () => {
  await using server = await HttpMcpServer.start()
  await using made = sessionOn(server.url.replace('/mcp', '/moved'))
  expect(await made.session.call(calling('echo'))).toMatchObject({
    content: 'hi in session-1',
    detail: { attempts: 1 },
  })
})

test('a stream cut after an event with an id is resumed from that event', async () => {
  await using server = await HttpMcpServer.start()
  await using made = sessionOn(server.url)
  const answer = await made.session.call(calling('interrupt'))
  expect(answer).toMatchObject({ content: 'resumed', detail: { generation: 1, attempts: 1 } })
  expect(server.resumed).toEqual(['event-1'])
  expect(server.calls).toEqual(['interrupt'])
})

test('a stream that breaks repeatedly is resumed a limited number of times', async () => {
  await using server = await HttpMcpServer.start()
  await using made = sessionOn(server.url)
  const patient = await made.session.call(calling('interrupt', { breaks: 2, retry: 1 }))
  expect(patient).toMatchObject({ content: 'resumed', detail: { attempts: 1 } })
  expect(server.resumed).toEqual(['event-1', 'event-1', 'event-1'])
  const error = await thrown(made.session.call(calling('interrupt', { breaks: 100, retry: 1 })))
  expect(error).toMatchObject({ code: 'tool_infra', data: { mayHaveRun: true, generation: 1 } })
  expect(server.resumed).toHaveLength(6)
})

test('a resumed stream ends with its call', async () => {
  await using server = await HttpMcpServer.start()
  await using made = sessionOn(server.url)
  const caller = new AbortSource()
  const call = made.session.call({ ...calling('interrupt', { hang: true }), signal: caller.signal })
  await expect.poll(() => server.hanging).toBe(1)
  caller.abort('left')
  await expect(call).rejects.toBe('left')
  await expect.poll(() => server.hanging).toBe(0)
})

test('a tool list that changes during its first read is read again', async () => {
  await using server = await HttpMcpServer.start({ changesList: true })
  await using made = sessionOn(server.url)
  await made.session.open()
  await expect.poll(() => made.session.catalogue?.tools.map(({ name }) => name)).toContain('extra')
  expect(made.events.at(-1)).toMatchObject({ name: 'mcp.tools_changed', added: ['extra'] })
})

test('a reply that is not JSON is an error of the server, not a lost connection', async () => {
  await using server = await HttpMcpServer.start()
  await using made = sessionOn(server.url)
  const error = await thrown(made.session.call(calling('nonsense')))
  expect(error).toMatchObject({ code: 'tool_infra', data: { mayHaveRun: true, attempt: 1, generation: 1 } })
  expect(made.session.isOpen).toBe(true)
})

test.each([
  ['same', "the page 'page' leads back to itself"],
  ['new', 'it has more than 1000 pages'],
] as const)('an endless tool list (%s) is refused', async (endlessList, why) => {
  await using server = await HttpMcpServer.start({ endlessList, answers: 'json' })
  await using made = sessionOn(server.url)
  const error = await thrown(made.session.open())
  expect(error.rawMessage).toContain(`the tool list of server 'web' does not end: ${why}`)
  expect(made.session.state).toBe('closed')
})

test('a single page with too many tools is refused', async () => {
  const lists = Array.from({ length: 10_001 }, (_, n) => ({ name: `t${n}`, inputSchema: { type: 'object' } }))
  await using server = await HttpMcpServer.start({ lists })
  await using made = sessionOn(server.url)
  expect((await thrown(made.session.open())).rawMessage).toContain('it has more than 10000 tools')
})

test('the problems of a tool list are reported in one line', async () => {
  const good = { name: 'good', inputSchema: { type: 'object' } }
  const lists = [
    good,
    { name: 'bare' },
    { name: 'old', inputSchema: { properties: {} } },
    { ...good, name: 'vague', description: null },
    {},
  ]
  await using server = await HttpMcpServer.start({ lists })
  await using made = sessionOn(server.url)
  expect((await thrown(made.session.open())).rawMessage).toBe(
    "server 'web' could not be opened: its tool list violates MCP: bare: inputSchema: missing; expected object; " +
      'old: inputSchema.type: expected "object"; vague: description: expected string, got null; and 1 more. ' +
      'Correct the server, or leave the tool out with "deny"',
  )
})
