import { existsSync } from 'node:fs'
import { mkdtempDisposable } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { ServerLog } from '../fixtures/mcp/misbehaving.ts'
import { MillraceError } from '../../src/errors/index.ts'
import { Semaphore } from '../../src/kit/index.ts'
import { McpSession } from '../../src/tools/mcp/session/mcp-session.ts'
import { calling, isAlive, sessionWith } from '../support/tools/session-with.ts'

const thrown = async (work: Promise<unknown>): Promise<MillraceError> => {
  const error = await work.then(
    () => undefined,
    (reason: unknown) => reason,
  )
  expect(error).toBeInstanceOf(MillraceError)
  return error as MillraceError
}

test('a hundred calls interrupted by a crash lead to one new process, and are repeated if that is safe', async () => {
  using log = new ServerLog()
  await using made = sessionWith([log.mode, 'crash-mid-call', 'until-start=2'])
  const { session, events } = made
  const first = await session.open()
  const answers = await Promise.all(Array.from({ length: 100 }, () => session.call(calling('echo_read_only'))))
  expect(answers.every(({ content }) => content === 'Echo: hi')).toBe(true)
  expect(log.count('start')).toBe(2)
  expect(session.generation).toBe(2)
  expect(answers[0]?.detail).toMatchObject({ generation: 2, attempts: 2 })
  // Nothing was told to the first process that the second one was not told again.
  expect(answers.filter(({ detail }) => detail.sessionRestarted)).toEqual([])
  expect(session.catalogue).toBe(first)
  expect(events.slice(1)).toMatchObject([
    { name: 'mcp.reconnect', ok: true, generation: 2, cause: expect.stringContaining('code 7') },
  ])
})

test('a call that may have run is not repeated, its error says so, and the next call starts a new process', async () => {
  using log = new ServerLog()
  await using made = sessionWith([log.mode])
  const { session } = made
  const error = await thrown(session.call(calling('crash')))
  expect(error.code).toBe('tool_infra')
  expect(error.message).toContain('The call may have run')
  expect(error.data).toMatchObject({
    server: 'mis',
    tool: 'crash',
    attempt: 1,
    generation: 1,
    exitCode: 7,
    mayHaveRun: true,
  })
  expect(error.data['stderr']).toContain('crashed as asked')
  expect(error.data['elapsedMs']).toBeGreaterThanOrEqual(0)
  expect(session.state).toBe('lost')
  expect(log.count('start')).toBe(1)
  expect((await session.call(calling('echo'))).detail).toEqual({
    server: 'mis',
    generation: 2,
    attempts: 1,
    sessionRestarted: true,
  })
  expect((await session.call(calling('echo'))).detail.sessionRestarted).toBeUndefined()
})

test('a restart is not reported for a shared server, nor to a rollout that began after it', async () => {
  await using shared = sessionWith([], { sharing: 'shared' })
  await thrown(shared.session.call(calling('crash')))
  expect((await shared.session.call(calling('echo'))).detail.sessionRestarted).toBeUndefined()

  await using pooled = sessionWith([], { sharing: 'pooled' })
  await thrown(pooled.session.call(calling('crash')))
  pooled.session.beginLease()
  expect((await pooled.session.call(calling('echo'))).detail.sessionRestarted).toBeUndefined()
})

test.each([
  { retry: 'always', tool: 'echo', repeated: true },
  { retry: 'safe', tool: 'echo_idempotent', repeated: true },
  { retry: 'safe', tool: 'echo', repeated: false },
  { retry: 'never', tool: 'echo_read_only', repeated: false },
] as const)('with retry $retry, $tool is repeated: $repeated', async ({ retry, tool, repeated }) => {
  using log = new ServerLog()
  await using made = sessionWith([log.mode, 'crash-mid-call', 'until-start=2'], { retry })
  if (repeated)
    expect(await made.session.call(calling(tool))).toMatchObject({ content: 'Echo: hi', detail: { attempts: 2 } })
  else await thrown(made.session.call(calling(tool)))
  expect(log.count('call')).toBe(repeated ? 2 : 1)
})

test('a call is repeated only once', async () => {
  using log = new ServerLog()
  await using made = sessionWith([log.mode, 'crash-mid-call'])
  const error = await thrown(made.session.call(calling('echo_read_only')))
  expect(error.data).toMatchObject({ attempt: 2, generation: 2, exitCode: 7, mayHaveRun: true })
  expect(error.data).not.toHaveProperty('sessionRestarted')
  expect(error.rawMessage).toMatch(/That was attempt 2, after: .*code 7.*\. The call may have run more than once\.$/)
  expect(log.count('call')).toBe(2)
})

test('with onRestart fail, a server that lost its state is not reopened and no call is repeated', async () => {
  using log = new ServerLog()
  await using made = sessionWith([log.mode, 'crash-mid-call=2', 'until-start=2'], {
    retry: 'always',
    onRestart: 'fail',
  })
  const { session } = made
  await session.call(calling('echo'))
  const lost = await thrown(session.call(calling('echo')))
  expect(lost.rawMessage).toMatch(/^server 'mis' was lost during 'echo': .*code 7.* has lost the state of this rollout/)
  expect(lost.data).toMatchObject({ sessionRestarted: true, mayHaveRun: true, exitCode: 7, generation: 1 })
  const later = await thrown(session.call(calling('echo')))
  expect(later.rawMessage).toMatch(/^server 'mis' was lost: .*code 7.* has lost the state of this rollout/)
  expect(later.data).toMatchObject({ sessionRestarted: true, mayHaveRun: false, attempt: 1 })
  expect([log.count('start'), log.count('call')]).toEqual([1, 2])
  // The next rollout told it nothing.
  session.beginLease()
  expect((await session.call(calling('echo'))).detail).toEqual({ server: 'mis', generation: 2, attempts: 1 })
})

test('with onRestart fail, the first call of a rollout is repeated, because there is no state to lose', async () => {
  using log = new ServerLog()
  await using made = sessionWith([log.mode, 'crash-mid-call', 'until-start=2'], { onRestart: 'fail' })
  const answer = await made.session.call(calling('echo_read_only'))
  expect(answer.detail).toEqual({ server: 'mis', generation: 2, attempts: 2 })
})

test('the error contains both failures if the new process fails too', async () => {
  using log = new ServerLog()
  await using made = sessionWith([log.mode, 'exit-before-initialize', 'from-start=2'], { retry: 'always' })
  const error = await thrown(made.session.call(calling('crash')))
  expect(error.rawMessage).toMatch(/^Reconnect to 'mis' also failed: server 'mis' could not be opened: .*code 3/)
  expect(error.data).toMatchObject({
    server: 'mis',
    tool: 'crash',
    attempt: 2,
    generation: 1,
    exitCode: 3,
    mayHaveRun: true,
  })
  expect(error.data['stderr']).toContain('cannot find my settings')
  expect(error.data['reconnectError']).toContain('code 3')
  expect(error.data['cause']).toContain('code 7')
  expect(error.cause).toBeInstanceOf(Error)
  expect(made.events.at(-1)).toMatchObject({ name: 'mcp.reconnect', ok: false, generation: 1 })
  expect(log.entries('start').filter(({ pid }) => isAlive(pid))).toEqual([])
})

test('a session fails calls at once when its reconnect budget is exhausted', async () => {
  using log = new ServerLog()
  await using made = sessionWith([log.mode], { reconnect: { max: 1, windowMs: 60_000 } })
  const { session, events } = made
  await thrown(session.call(calling('crash')))
  await thrown(session.call(calling('crash')))
  for (let call = 0; call < 3; call += 1) {
    const error = await thrown(session.call(calling('echo')))
    expect(error.rawMessage).toContain('it was reopened 1 times within 60000 ms')
    expect(error.data).toMatchObject({ mayHaveRun: false, generation: 2 })
  }
  expect(log.count('start')).toBe(2)
  expect(events.filter(({ name }) => name === 'mcp.circuit_open')).toHaveLength(1)
})

test('calls during a reconnect wait for it and use the new process', async () => {
  using log = new ServerLog()
  await using made = sessionWith([log.mode, 'slow-initialize=100', 'from-start=2'])
  const { session } = made
  await thrown(session.call(calling('crash')))
  const early = session.call(calling('echo'))
  await expect.poll(() => log.count('initialize')).toBe(2)
  expect(session.state).toBe('reconnecting')
  const late = session.call(calling('echo'))
  expect((await Promise.all([early, late])).map(({ detail }) => detail.generation)).toEqual([2, 2])
  expect(log.count('start')).toBe(2)
})

test('a call waits for a reconnect no longer than its timeout', async () => {
  using log = new ServerLog()
  await using made = sessionWith([log.mode, 'hang-initialize', 'from-start=2'])
  const { session } = made
  await thrown(session.call(calling('crash')))
  const error = await thrown(session.call({ ...calling('echo'), timeoutMs: 200 }))
  expect(error).toMatchObject({ code: 'tool_infra', data: { mayHaveRun: false } })
  expect(error.rawMessage).toContain('within the 200 ms of the call')
})

test('close during a reconnect fails the waiting calls and leaves no process', async () => {
  using log = new ServerLog()
  await using made = sessionWith([log.mode, 'hang-initialize', 'from-start=2'])
  const { session } = made
  await thrown(session.call(calling('crash')))
  const waiting = [session.call(calling('echo')), session.call(calling('echo'))].map(thrown)
  await expect.poll(() => log.count('initialize')).toBe(2)
  await session.close()
  expect((await Promise.all(waiting)).map(({ code }) => code)).toEqual(['closed', 'closed'])
  expect(log.entries('start').filter(({ pid }) => isAlive(pid))).toEqual([])
})

test('a call aborted during a reconnect fails with its own reason, and the reconnect continues', async () => {
  using log = new ServerLog()
  await using made = sessionWith([log.mode, 'slow-initialize=300', 'from-start=2'])
  const { session } = made
  await thrown(session.call(calling('crash')))
  const caller = new AbortController()
  const call = session.call({ ...calling('echo'), signal: caller.signal })
  await expect.poll(() => log.count('initialize')).toBe(2)
  caller.abort('left')
  await expect(call).rejects.toBe('left')
  expect(session.state).toBe('reconnecting')
  expect(await session.call(calling('echo'))).toMatchObject({ detail: { generation: 2 } })
  expect(log.count('start')).toBe(2)
})

test('a changed tool list after a reconnect is reported', async () => {
  using log = new ServerLog()
  await using made = sessionWith([log.mode, 'list-per-start'])
  const { session, events } = made
  const first = await session.open()
  await thrown(session.call(calling('crash')))
  await session.call(calling('echo'))
  expect(session.catalogue).not.toBe(first)
  expect(events.find(({ name }) => name === 'mcp.tools_changed')).toEqual({
    name: 'mcp.tools_changed',
    server: 'mis',
    added: ['only_in_start_2'],
    removed: ['only_in_start_1'],
    changed: [],
  })
})

test('a server killed from outside is noticed before the next call, which runs on a new process', async () => {
  using log = new ServerLog()
  await using made = sessionWith([log.mode])
  const { session } = made
  await session.open()
  process.kill(log.entries('start')[0]?.pid ?? 0, 'SIGKILL')
  await expect.poll(() => session.state).toBe('lost')
  expect(await session.call(calling('echo'))).toMatchObject({
    content: 'Echo: hi',
    detail: { generation: 2, attempts: 1 },
  })
  expect(made.events.at(-1)).toMatchObject({
    name: 'mcp.reconnect',
    ok: true,
    cause: expect.stringContaining('SIGKILL'),
  })
})

/** Takes no more input once it is told to quit, and ends a moment after that. */
const quitting = `
const { closeSync, writeFileSync } = require('node:fs')
const send = (message) => process.stdout.write(JSON.stringify({ jsonrpc: '2.0', ...message }) + '\\n')
const tools = ['quit', 'echo'].map((name) => ({ name, inputSchema: { type: 'object' } }))
const serverInfo = { name: 'quitting', version: '1' }
require('node:readline').createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method, params } = JSON.parse(line)
  if (method === 'initialize')
    send({ id, result: { protocolVersion: params.protocolVersion, capabilities: { tools: {} }, serverInfo } })
  if (method === 'tools/list') send({ id, result: { tools } })
  if (method !== 'tools/call') return
  if (params.name === 'echo') return send({ id, result: { content: [{ type: 'text', text: 'heard' }] } })
  process.stdin.destroy()
  closeSync(0)
  writeFileSync(process.argv[1], '')
  setTimeout(() => {
    process.stderr.write('out of memory')
    process.exitCode = 7
  }, 100)
})
`

test('a waiting call fails with the exit of the server, also if another call noticed it first', async () => {
  await using folder = await mkdtempDisposable(join(tmpdir(), 'millrace-mcp-'))
  const hasQuit = join(folder.path, 'quit')
  const config = { command: process.execPath, args: ['--eval', quitting, hasQuit], sharing: 'shared' as const }
  await using session = new McpSession({ name: 'mis', config, starts: new Semaphore(1), onEvent: () => {} })
  await session.open()
  const waiting = session.call(calling('quit'))
  waiting.catch(() => {})
  await expect.poll(() => existsSync(hasQuit)).toBe(true)
  expect(await session.call(calling('echo'))).toMatchObject({ content: 'heard', detail: { generation: 2 } })
  await expect(waiting).rejects.toMatchObject({
    code: 'tool_infra',
    rawMessage: expect.stringContaining('exited with code 7; its stderr ended with: out of memory'),
  })
})
