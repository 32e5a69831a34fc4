import { getEventListeners } from 'node:events'
import { expect, test } from 'vitest'
import { ServerLog } from '../fixtures/mcp/misbehaving.ts'
import { MillraceError } from '../../src/errors/index.ts'
import { Semaphore } from '../../src/kit/index.ts'
import { activeResources, leftSince } from '../support/kit/active-resources.ts'
import { calling, isAlive, sessionWith } from '../support/tools/session-with.ts'

const echo = (message: string) => calling('echo', { message })

test.each(['hang-initialize', 'initialize-error', 'exit-before-initialize', 'list-hang', 'list-error'])(
  'a server with %s fails to open, everything is closed, and it can be opened later',
  async (mode) => {
    using log = new ServerLog()
    await using made = sessionWith([log.mode, mode, 'until-start=2'], {
      startTimeoutMs: mode.includes('hang') ? 400 : 20_000,
    })
    const { session, starts, events } = made
    const error = await session.open().catch((thrown: unknown) => thrown)
    expect(error).toBeInstanceOf(MillraceError)
    expect(error).toMatchObject({ code: 'tool_infra', data: { server: 'mis', generation: 0 } })
    expect(session.state).toBe('closed')
    expect(starts.held).toBe(0)
    expect(log.entries('start').filter(({ pid }) => isAlive(pid))).toEqual([])
    expect(events).toMatchObject([{ name: 'mcp.open', ok: false }])
    const { cause = '' } = events[0]?.name === 'mcp.open' ? events[0] : {}
    expect(cause).toMatch(/^server 'mis' could not be opened: /)
    // Each thing is said once, though the error and what caused it both say it.
    const [reason = '', ...rest] = cause.slice("server 'mis' could not be opened: ".length).split(': ')
    expect(rest).not.toContain(reason)
  },
)

test('a thousand calls on one session, answered or aborted, leave neither timers nor listeners', async () => {
  using log = new ServerLog()
  await using made = sessionWith([log.mode])
  const { session } = made
  await session.open()
  const before = activeResources()
  const shared = new AbortController()
  const answers = await Promise.all(
    Array.from({ length: 1000 }, (_, index) => session.call({ ...echo(String(index)), signal: shared.signal })),
  )
  expect(answers.map(({ content }) => content)).toEqual(answers.map((_, index) => `Echo: ${index}`))
  const hanging = Array.from({ length: 1000 }, () =>
    session.call({ ...calling('sleep', { ms: 600_000 }), signal: shared.signal }).catch((thrown: unknown) => thrown),
  )
  await expect.poll(() => log.count('call')).toBe(2000)
  shared.abort('enough')
  expect(new Set(await Promise.all(hanging))).toEqual(new Set(['enough']))
  expect(getEventListeners(shared.signal, 'abort')).toEqual([])
  expect(await leftSince(before)).toEqual([])
  await expect.poll(() => log.count('cancel')).toBe(1000)
  expect(await session.call(echo('still here'))).toMatchObject({
    content: 'Echo: still here',
    detail: { generation: 1 },
  })
})

test('an opening aborted by its only caller leaves no process; one of two callers may abort', async () => {
  using log = new ServerLog()
  await using made = sessionWith([log.mode, 'slow-initialize=600'])
  const { session } = made
  const only = new AbortController()
  const opening = session.open(only.signal)
  await expect.poll(() => log.count('initialize')).toBe(1)
  only.abort('left')
  await expect(opening).rejects.toBe('left')
  expect(log.entries('start').filter(({ pid }) => isAlive(pid))).toEqual([])
  expect(session.state).toBe('closed')

  const one = new AbortController()
  const both = [session.open(one.signal), session.open()]
  await expect.poll(() => log.count('initialize')).toBe(2)
  one.abort('left')
  expect(await Promise.allSettled(both)).toMatchObject([
    { status: 'rejected', reason: 'left' },
    { status: 'fulfilled' },
  ])
})

test('a connection that opens when its only caller aborts is closed, and the next caller opens another', async () => {
  using log = new ServerLog()
  const only = new AbortController()
  // The permit to start is given back when the connection is open and has not been taken over.
  const onRelease = (): void => only.abort('left')
  const starts = new Semaphore(1, Number.POSITIVE_INFINITY, { onRelease })
  await using made = sessionWith([log.mode], {}, starts)
  const { session, events } = made
  await expect(session.open(only.signal)).rejects.toBe('left')
  expect(log.count('list')).toBe(1)
  expect(log.entries('start').filter(({ pid }) => isAlive(pid))).toEqual([])
  expect([session.state, events]).toEqual(['closed', []])
  expect(await session.call(echo('again'))).toMatchObject({ content: 'Echo: again', detail: { generation: 1 } })
  expect(log.count('start')).toBe(2)
})

test('close is final, also during an opening, and also for running calls', async () => {
  using log = new ServerLog()
  await using slow = sessionWith([log.mode, 'slow-initialize=60000'])
  const opening = slow.session.open()
  await expect.poll(() => log.count('initialize')).toBe(1)
  await Promise.all([
    expect(opening).rejects.toMatchObject({ code: 'closed' }),
    slow.session.close(),
    slow.session.close(),
  ])
  expect(log.entries('start').filter(({ pid }) => isAlive(pid))).toEqual([])

  await using made = sessionWith([log.mode, 'hang-call'])
  await made.session.open()
  const call = made.session.call(echo('x'))
  await Promise.all([expect(call).rejects.toMatchObject({ code: 'closed' }), made.session.close()])
  await expect(made.session.call(echo('x'))).rejects.toMatchObject({ code: 'closed' })
  await expect(made.session.open()).rejects.toMatchObject({ code: 'closed' })
  expect(made.session.state).toBe('closed')
})

test('a closed session leaves no timer behind, whatever its maximum lifetime', async () => {
  const before = activeResources()
  {
    await using made = sessionWith([], { idleMs: 3_600_000, maxLifetimeMs: 3_600_000 })
    await made.session.call(echo('x'))
  }
  expect(await leftSince(before)).toEqual([])
})

test('an idle session is closed, and reopened by the next call without using the reconnect budget', async () => {
  await using made = sessionWith([], { idleMs: 20, reconnect: { max: 0, windowMs: 1 } })
  const { session, events } = made
  const first = await session.open()
  await expect.poll(() => session.state).toBe('closed')
  expect(await session.call(echo('again'))).toMatchObject({ content: 'Echo: again', detail: { generation: 2 } })
  expect(session.catalogue).toBe(first)
  expect(events.map(({ name }) => name).slice(0, 3)).toEqual(['mcp.open', 'mcp.recycled', 'mcp.open'])
  expect(events[1]).toMatchObject({ why: 'idle' })
})

test('an old session is replaced at once, while its running calls continue', async () => {
  using log = new ServerLog()
  await using made = sessionWith([log.mode], { maxLifetimeMs: 200 })
  const { session, events } = made
  const running = session.call(calling('sleep', { ms: 1000 }))
  await expect.poll(() => events.find(({ name }) => name === 'mcp.recycled')).toMatchObject({ why: 'lifetime' })
  expect(await session.call(echo('x'))).toMatchObject({ detail: { generation: 2 } })
  expect(await running).toMatchObject({ content: 'slept 1000 ms', detail: { generation: 1 } })
  await expect.poll(() => isAlive(log.entries('start')[0]?.pid ?? 0)).toBe(false)
})

test('an old session under steady load is replaced, with at most two processes', async () => {
  using log = new ServerLog()
  await using made = sessionWith([log.mode], { maxLifetimeMs: 50 })
  const { session } = made
  const long: Promise<{ content: unknown }>[] = []
  let most = 0
  for (let round = 0; round < 60 && session.generation < 4; round += 1) {
    // Outlasts the short one, so that there is never a moment without a call.
    long.push(session.call(calling('sleep', { ms: 400 })))
    await session.call(calling('sleep', { ms: 100 }))
    most = Math.max(most, log.entries('start').filter(({ pid }) => isAlive(pid)).length)
  }
  expect(session.generation).toBe(4)
  expect(most).toBeLessThanOrEqual(2)
  expect(new Set((await Promise.all(long)).map(({ content }) => content))).toEqual(new Set(['slept 400 ms']))
})

test('close ends a process that waits for its last calls', async () => {
  using log = new ServerLog()
  await using made = sessionWith([log.mode], { maxLifetimeMs: 200 })
  const { session, events } = made
  const running = session.call(calling('sleep', { ms: 600_000 }))
  await expect.poll(() => events.some(({ name }) => name === 'mcp.recycled')).toBe(true)
  await session.call(echo('x'))
  await Promise.all([expect(running).rejects.toMatchObject({ code: 'closed' }), session.close()])
  expect(log.entries('start').filter(({ pid }) => isAlive(pid))).toEqual([])
})
