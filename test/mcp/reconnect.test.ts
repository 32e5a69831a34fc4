/** V3: a lost connection is opened again once for all, and no call is made twice that must not be. */
import type { Message } from 'millrace'
import { calls } from 'millrace/testing'
import { expect, test } from 'vitest'
import type { MillraceError } from '../../src/errors/index.ts'
import { Semaphore } from '../../src/kit/index.ts'
import { HttpMcpServer } from '../support/tools/http-mcp-server.ts'
import { calling, sessionWith } from '../support/tools/session-with.ts'
import { McpSession } from '../../src/tools/mcp/session/mcp-session.ts'
import { misbehaving, ServerLog } from '../fixtures/mcp/misbehaving.ts'
import { failureOf } from '../support/tools/failure-of.ts'
import { isRunning, survivors } from '../support/tools/processes.ts'
import { environmentWith, startRollouts } from '../support/tools/rollouts-with-servers.ts'

const hundred = <T>(make: (index: number) => T): T[] => Array.from({ length: 100 }, (_, index) => make(index))

/** The process of the nth start. */
const processOf = (log: ServerLog, start: number): number => log.entries('start')[start - 1]?.pid ?? Number.NaN

test('a hundred calls during a crash lead to exactly one new process', async () => {
  using log = new ServerLog()
  // Some were answered before the crash, and most were not.
  await using made = sessionWith([log.mode, 'crash-mid-call=20', 'until-start=2'], { retry: 'always' })
  const { session, events } = made
  await session.open()
  const answers = await Promise.all(hundred((index) => session.call(calling('echo', { message: String(index) }))))
  expect(answers.map(({ content }) => content)).toEqual(hundred((index) => `Echo: ${index}`))
  const generations = new Set(answers.map(({ detail }) => detail.generation))
  expect(generations.has(2)).toBe(true)
  // None of those that failed on the first process ended the second one.
  expect(session.generation).toBe(2)
  expect(log.count('start')).toBe(2)
  expect(isRunning(processOf(log, 2))).toBe(true)
  expect(events.map(({ name }) => name)).toEqual(['mcp.open', 'mcp.reconnect'])
})

test('a hundred calls that are not repeated lead to one new process, also with new calls meanwhile', async () => {
  using log = new ServerLog()
  await using made = sessionWith([log.mode, 'crash-mid-call=1', 'until-start=2'])
  const { session } = made
  await session.open()
  const failedOn = new Set<unknown>()
  // Each is called again as soon as it has failed. Those that the server cannot have read do not fail.
  const answers = await Promise.all(
    hundred(() =>
      session.call(calling('echo')).catch((error: MillraceError) => {
        failedOn.add(error.data['generation'])
        return session.call(calling('echo'))
      }),
    ),
  )
  expect(failedOn).toEqual(new Set([1]))
  expect(new Set(answers.map(({ detail }) => detail.generation))).toEqual(new Set([2]))
  expect(log.count('start')).toBe(2)
})

test('a late failure on the previous connection does not affect the current one', async () => {
  await using server = await HttpMcpServer.start()
  const config = { type: 'http', url: server.url } as const
  await using session = new McpSession({ name: 'web', config, starts: new Semaphore(1), onEvent: () => {} })
  const late = session.call({ ...calling('hang'), timeoutMs: 2_000 })
  await expect.poll(() => server.hanging).toBe(1)
  server.forget()
  expect(await session.call(calling('echo'))).toMatchObject({ detail: { generation: 2 } })
  expect(await late).toMatchObject({ isError: true, detail: { generation: 1 } })
  expect(session.state).toBe('open')
  expect(await session.call(calling('echo'))).toMatchObject({ content: 'hi in session-2', detail: { generation: 2 } })
  expect(server.ended).not.toContain('session-2')
})

test('calls during a reconnect wait for it and use the new connection', async () => {
  using log = new ServerLog()
  await using made = sessionWith([log.mode, 'slow-initialize=300', 'from-start=2'])
  const { session } = made
  await failureOf(session.call(calling('crash')))
  const first = session.call(calling('echo'))
  await expect.poll(() => log.count('initialize')).toBe(2)
  expect(session.state).toBe('reconnecting')
  const later = hundred(() => session.call(calling('echo')))
  const answers = await Promise.all([first, ...later])
  expect(new Set(answers.map(({ detail }) => detail.generation))).toEqual(new Set([2]))
  expect(log.count('start')).toBe(2)
})

test('calls during a reconnect wait no longer than their timeout', async () => {
  using log = new ServerLog()
  await using made = sessionWith([log.mode, 'hang-initialize', 'from-start=2'])
  await failureOf(made.session.call(calling('crash')))
  const error = await failureOf(made.session.call({ ...calling('echo'), timeoutMs: 300 }))
  expect(error).toMatchObject({ code: 'tool_infra', data: { mayHaveRun: false, generation: 1 } })
  expect(error.rawMessage).toContain('300 ms')
})

test('close during a reconnect takes precedence', async () => {
  using log = new ServerLog()
  await using made = sessionWith([log.mode, 'hang-initialize', 'from-start=2'])
  const { session } = made
  await failureOf(session.call(calling('crash')))
  const waiting = hundred(() => failureOf(session.call(calling('echo'))))
  await expect.poll(() => log.count('initialize')).toBe(2)
  await session.close()
  expect(survivors(log)).toEqual([])
  expect(new Set((await Promise.all(waiting)).map(({ code }) => code))).toEqual(new Set(['closed']))
  await expect(session.call(calling('echo'))).rejects.toMatchObject({ code: 'closed' })
  expect(log.count('start')).toBe(2)
})

test.concurrent.for([
  { retry: 'safe', tool: 'echo', isRepeated: false },
  { retry: 'safe', tool: 'echo_read_only', isRepeated: true },
  { retry: 'safe', tool: 'echo_idempotent', isRepeated: true },
  { retry: 'always', tool: 'echo', isRepeated: true },
  { retry: 'never', tool: 'echo_read_only', isRepeated: false },
] as const)('retry $retry: $tool is repeated after a crash: $isRepeated', async (given) => {
  using log = new ServerLog()
  await using made = sessionWith([log.mode, 'crash-mid-call', 'until-start=2'], { retry: given.retry })
  const called = made.session.call(calling(given.tool))
  if (given.isRepeated) {
    expect(await called).toMatchObject({ content: 'Echo: hi', isError: false, detail: { attempts: 2, generation: 2 } })
  } else {
    await expect(called).rejects.toMatchObject({
      code: 'tool_infra',
      rawMessage: expect.stringContaining('The call may have run'),
      data: { mayHaveRun: true, attempt: 1 },
    })
  }
  expect(log.count('call')).toBe(given.isRepeated ? 2 : 1)
})

test('a call is repeated at most once', async () => {
  using log = new ServerLog()
  await using made = sessionWith([log.mode, 'crash-mid-call'], { retry: 'always' })
  const error = await failureOf(made.session.call(calling('echo')))
  expect(error.data).toMatchObject({ attempt: 2, generation: 2, mayHaveRun: true })
  expect(log.count('call')).toBe(2)
})

test('a call that was never written is made on the next process, for any tool', async () => {
  using log = new ServerLog()
  await using made = sessionWith([log.mode])
  const { session } = made
  await session.open()
  // A process that reads no more: the first call fills the pipe, so that the second one stays with us.
  process.kill(processOf(log, 1), 'SIGSTOP')
  const large = session.call(calling('echo', { message: 'x'.repeat(1_000_000) })).catch((error: unknown) => error)
  const unwritten = session.call(calling('echo'))
  process.kill(processOf(log, 1), 'SIGKILL')
  expect(await unwritten).toMatchObject({ content: 'Echo: hi', detail: { attempts: 2, generation: 2 } })
  await large
  expect(log.entries('call').every(({ pid }) => pid === processOf(log, 2))).toBe(true)
})

test('an aborted call does not cause a reconnect', async () => {
  using log = new ServerLog()
  await using made = sessionWith([log.mode])
  const { session, events } = made
  await session.open()
  const leaving = new AbortController()
  const left = hundred(() => session.call({ ...calling('sleep', { ms: 600_000 }), signal: leaving.signal }))
  await expect.poll(() => log.count('call')).toBe(100)
  leaving.abort('left')
  expect(new Set((await Promise.allSettled(left)).map((each) => each.status === 'rejected' && each.reason))).toEqual(
    new Set(['left']),
  )
  await expect.poll(() => log.count('cancel')).toBe(100)
  expect(await session.call(calling('counter'))).toMatchObject({ content: '1', detail: { generation: 1 } })
  expect(log.count('start')).toBe(1)
  expect(events.map(({ name }) => name)).toEqual(['mcp.open'])
})

test('an aborted call that waited for a reconnect does not cause a second one', async () => {
  using log = new ServerLog()
  await using made = sessionWith([log.mode, 'hang-initialize', 'from-start=2'])
  const { session } = made
  await failureOf(session.call(calling('crash')))
  const leaving = new AbortController()
  const left = session.call({ ...calling('echo'), signal: leaving.signal })
  await expect.poll(() => log.count('initialize')).toBe(2)
  leaving.abort('left')
  await expect(left).rejects.toBe('left')
  await session.close()
  expect(survivors(log)).toEqual([])
  expect(log.count('start')).toBe(2)
})

test('too many reconnects open the circuit until the time window ends', async () => {
  using log = new ServerLog()
  const windowMs = 3_000
  await using made = sessionWith([log.mode], { reconnect: { max: 2, windowMs } })
  const { session, events } = made
  for (const _ of [1, 2, 3]) await failureOf(session.call(calling('crash')))
  expect(log.count('start')).toBe(3)
  const refused = await Promise.all(hundred(() => failureOf(session.call(calling('echo')))))
  for (const error of refused) {
    expect(error.rawMessage).toContain(`it was reopened 2 times within ${windowMs} ms`)
    expect(error.data).toMatchObject({ server: 'mis', mayHaveRun: false, generation: 3 })
  }
  expect(log.count('start')).toBe(3)
  expect(events.filter(({ name }) => name === 'mcp.circuit_open')).toMatchObject([{ server: 'mis' }])
  // Each further reconnect waited longer than the one before, which waited for nothing: a timer is never early.
  const waits = events.flatMap((event) => (event.name === 'mcp.reconnect' ? [event.ms] : []))
  expect(waits[1]).toBeGreaterThanOrEqual(125)
  await expect.poll(() => session.call(calling('echo')).catch(() => undefined)).toMatchObject({ content: 'Echo: hi' })
  expect(log.count('start')).toBe(4)
})

test('tools are listed again after a reconnect, and a change is reported', async () => {
  using log = new ServerLog()
  await using made = sessionWith([log.mode, 'list-per-start'])
  const { session, events } = made
  const before = await session.open()
  await failureOf(session.call(calling('crash')))
  expect(await session.call(calling('only_in_start_1'))).toMatchObject({
    isError: true,
    content: expect.stringContaining("Did you mean 'only_in_start_2'"),
  })
  expect(log.count('list')).toBe(2)
  expect(events.filter(({ name }) => name === 'mcp.tools_changed')).toEqual([
    {
      name: 'mcp.tools_changed',
      server: 'mis',
      added: ['only_in_start_2'],
      removed: ['only_in_start_1'],
      changed: [],
    },
  ])
  expect(session.catalogue?.digest).not.toBe(before.digest)
})

test('a restart is reported with the next answer, or with the error', async () => {
  await using made = sessionWith([], { retry: 'always' })
  const { session } = made
  expect((await session.call(calling('counter'))).detail.sessionRestarted).toBeUndefined()
  expect((await failureOf(session.call(calling('crash')))).data).toMatchObject({ attempt: 2, sessionRestarted: true })
  expect(await session.call(calling('counter'))).toMatchObject({ content: '1', detail: { sessionRestarted: true } })
  expect((await session.call(calling('counter'))).detail.sessionRestarted).toBeUndefined()
})

/** Counts, loses its server in the middle, and counts on. */
const forgetful = ({ messages }: { messages: readonly Message[] }) => {
  const answered = messages.filter(({ role }) => role === 'tool').length
  return answered < 2 ? calls({ counter: {} }) : 'done'
}

test('a server that lost its state ends the rollout as infrastructure failure, unless onRestart is tell', async () => {
  const outcomes = await Promise.all(
    (['fail', 'tell'] as const).map(async (onRestart) => {
      using log = new ServerLog()
      const config = misbehaving(log.mode, 'crash-after-n-calls=1', 'until-start=2')
      const options = { pool: { warm: 0 }, retry: 'always', onRestart } as const
      await using run = await startRollouts(environmentWith({ mis: { ...config, ...options } }), forgetful)
      const [record] = await Array.fromAsync(run.evaluation)
      return record
    }),
  )
  const [failed, told] = outcomes
  expect(failed).toMatchObject({ outcome: 'tool_infra_error', reward: null })
  expect(failed?.error?.message).toContain('has lost the state of this rollout')
  expect(told).toMatchObject({ outcome: 'completed', reward: 1 })
  const results = told?.messages.filter(({ role }) => role === 'tool').map(({ content }) => String(content))
  expect(results).toEqual(['1', expect.stringMatching(/^Note: the tool server "mis" was restarted[^]*\n1$/)])
})
