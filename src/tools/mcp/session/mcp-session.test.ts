import { expect, test } from 'vitest'
import { ServerLog } from '../../../../test/fixtures/mcp/misbehaving.ts'
import { AbortSource } from '../../../kit/index.ts'
import { calling, calm, sessionWith } from '../../../../test/support/tools/session-with.ts'

const echo = (message: string) => calling('echo', { message })

test('a session opens once for all callers, holds a start permit only meanwhile, and calls', async () => {
  using log = new ServerLog()
  await using made = sessionWith([log.mode])
  const { session, starts, events } = made
  expect(session.state).toBe('closed')
  const opening = [session.open(), session.open()]
  expect(session.state).toBe('opening')
  const [first, second] = await Promise.all(opening)
  expect(first).toBe(second)
  expect(session.state).toBe('open')
  expect(starts.held).toBe(0)
  expect(first?.tools.map(({ name }) => name)).toContain('echo_read_only')
  expect(first?.tools.find(({ name }) => name === 'echo_read_only')).toMatchObject({
    isReadOnly: true,
    isIdempotent: true,
  })
  expect(await session.call(echo('hi'))).toEqual({
    content: 'Echo: hi',
    isError: false,
    detail: { server: 'mis', generation: 1, attempts: 1 },
  })
  expect([log.count('start'), log.count('initialize'), log.count('list')]).toEqual([1, 1, 1])
  expect(events).toMatchObject([{ name: 'mcp.open', server: 'mis', ok: true }])
})

test('images, structured content and failures are returned unchanged', async () => {
  await using made = sessionWith([])
  const { session } = made
  const call = (tool: string, given = {}) => session.call({ tool, arguments: given, signal: calm })
  const image = await call('image')
  expect(image.content).toMatchObject([
    { type: 'text', text: 'before' },
    { type: 'image_url', image_url: { url: expect.stringMatching(/^data:image\/png;base64,iVBOR/) } },
    { type: 'text', text: 'after' },
  ])
  expect(await call('add', { a: 1, b: 2 })).toMatchObject({ content: '3', structured: { sum: 3 }, isError: false })
  expect(await call('fail', { why: 'no luck' })).toMatchObject({ content: 'no luck', isError: true })
})

test('a denied tool is not listed or called; an unknown tool gets the nearest names', async () => {
  using log = new ServerLog()
  await using made = sessionWith([log.mode], { deny: ['add'] })
  const { session } = made
  const { tools } = await session.open()
  expect(tools.map(({ name }) => name)).not.toContain('add')
  const denied = await session.call({ tool: 'add', arguments: { a: 1, b: 1 }, signal: calm })
  expect(denied).toMatchObject({ isError: true, content: "The tool 'add' of server 'mis' may not be used." })
  const unknown = await session.call({ tool: 'ecko', arguments: {}, signal: calm })
  expect(unknown).toMatchObject({ isError: true, content: expect.stringContaining("Did you mean 'echo'") })
  expect(log.count('call')).toBe(0)
})

test('an invalid tool is reported, and the other tools are available', async () => {
  await using refused = sessionWith(['bare-tool'])
  await expect(refused.session.open()).rejects.toMatchObject({
    code: 'tool_infra',
    rawMessage:
      "server 'mis' could not be opened: its tool list violates MCP: bare: inputSchema: missing; expected object. " +
      'Correct the server, or leave the tool out with "deny"',
  })
  await using made = sessionWith(['bare-tool'], { deny: ['bare'] })
  const { tools, unlisted } = await made.session.open()
  expect(tools.map(({ name }) => name)).toEqual(expect.not.arrayContaining(['bare']))
  expect(unlisted).toBeUndefined()
  expect(await made.session.call(echo('hi'))).toMatchObject({ content: 'Echo: hi' })
})

test('a call that times out returns an error answer and is cancelled at the server', async () => {
  using log = new ServerLog()
  await using made = sessionWith([log.mode, 'hang-call'], { callTimeoutMs: 60_000 })
  await made.session.open()
  const answer = await made.session.call({ ...echo('x'), timeoutMs: 30.4 })
  expect(answer).toMatchObject({
    isError: true,
    content: "The tool 'echo' of server 'mis' did not answer within 30 ms and was told to stop.",
  })
  await expect.poll(() => log.count('cancel')).toBe(1)
  expect(made.session.generation).toBe(1)
})

test('a call without time left is not made, and no cancellation is sent', async () => {
  using log = new ServerLog()
  await using made = sessionWith([log.mode])
  await made.session.open()
  expect(await made.session.call({ ...echo('x'), timeoutMs: 0 })).toMatchObject({
    isError: true,
    content: "The tool 'echo' of server 'mis' could not be called within 0 ms.",
  })
  expect(await made.session.call(echo('y'))).toMatchObject({ content: 'Echo: y' })
  expect([log.count('call'), log.count('cancel')]).toEqual([1, 0])
})

test('an aborted call rejects with its reason, is cancelled at the server, and does not reconnect', async () => {
  using log = new ServerLog()
  await using made = sessionWith([log.mode, 'hang-call'])
  const source = new AbortSource()
  await made.session.open()
  const call = made.session.call({ ...echo('x'), signal: source.signal })
  await expect.poll(() => log.count('call')).toBe(1)
  source.abort('enough')
  await expect(call).rejects.toBe('enough')
  await expect.poll(() => log.count('cancel')).toBe(1)
  await expect(made.session.call({ ...echo('x'), signal: AbortSignal.abort('never') })).rejects.toBe('never')
  expect(made.session.generation).toBe(1)
})

test('the progress of a call is passed on', async () => {
  await using made = sessionWith([])
  const received: number[] = []
  await made.session.call({
    tool: 'sleep',
    arguments: { ms: 20 },
    signal: calm,
    onProgress: ({ progress, total }) => received.push(progress / (total ?? 0)),
  })
  expect(received).toHaveLength(10)
  expect(received.at(-1)).toBe(1)
})

test('all pages of the tool list are read', async () => {
  using log = new ServerLog()
  await using made = sessionWith([log.mode, 'paged-list=25'])
  const { tools } = await made.session.open()
  expect(tools.map(({ name }) => name)).toContain('paged_24')
  expect(log.count('list')).toBeGreaterThan(2)
})

test('the tool list is read again when the server reports a change', async () => {
  await using made = sessionWith(['changing-list'])
  const { session, events } = made
  const first = await session.open()
  await Promise.all([session.call(calling('change_list')), session.call(calling('change_list'))])
  await expect
    .poll(() => events.flatMap((event) => (event.name === 'mcp.tools_changed' ? event.added : [])))
    .toEqual(['extra_0', 'extra_1'])
  expect(session.catalogue).not.toBe(first)
  expect(session.catalogue?.digest).not.toBe(first.digest)
})
