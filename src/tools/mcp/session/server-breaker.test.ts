import { setImmediate as turn } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { MillraceError } from '../../../errors/index.ts'
import type { ServerOptions } from '../config/server-config.ts'
import { AttemptLimit, ServerBreaker } from './server-breaker.ts'
import type { ServerEvent } from './server-events.ts'

const { signal } = new AbortController()

/** A server that a test takes away and brings back, and its breaker. */
function serverWith(config: ServerOptions = {}) {
  const events: ServerEvent[] = []
  const probeBackoff = { firstMs: 1, factor: 1, maxMs: 1 }
  const breaker = new ServerBreaker({ server: 'one', config, onEvent: (event) => events.push(event), probeBackoff })
  const server = { isThere: true, status: undefined as number | undefined, tries: 0, atOnce: 0, mostAtOnce: 0 }
  const connect = async (): Promise<string> => {
    server.tries += 1
    server.atOnce += 1
    server.mostAtOnce = Math.max(server.mostAtOnce, server.atOnce)
    await turn()
    server.atOnce -= 1
    if (server.isThere) return 'connected'
    const data = server.status === undefined ? {} : { status: server.status }
    throw new MillraceError('tool_infra', `refused, try ${server.tries}`, { data })
  }
  return { breaker, server, events, connect }
}

const triesOf = (server: { tries: number }, count: number) => expect.poll(() => server.tries).toBeGreaterThan(count)

test('a server that was never open fails its callers', async () => {
  const { breaker, server, events, connect } = serverWith()
  server.isThere = false
  await expect(breaker.open(connect, { signal })).rejects.toMatchObject({
    code: 'tool_infra',
    rawMessage: 'refused, try 1',
  })
  expect(breaker.outage).toBeUndefined()
  expect(events).toEqual([])
})

test('callers wait for a server that was open; one caller at a time probes it, then all continue', async () => {
  const { breaker, server, events, connect } = serverWith()
  await breaker.open(connect, { signal })
  server.isThere = false
  const waits: string[] = []
  const onAway = (why: MillraceError) => {
    waits.push(why.rawMessage)
    return () => waits.push('over')
  }
  const first = breaker.open(connect, { signal, onAway })
  await expect.poll(() => breaker.outage?.why.rawMessage).toContain('refused')
  server.mostAtOnce = 0
  const others = Array.from({ length: 20 }, () => breaker.open(connect, { signal }))
  const { tries } = server
  await triesOf(server, tries + 3)
  expect(server.mostAtOnce).toBe(1)
  server.isThere = true
  expect(await Promise.all([first, ...others])).toEqual(Array.from({ length: 21 }, () => 'connected'))
  expect(breaker.outage).toBeUndefined()
  expect(waits).toEqual(['refused, try 2', 'over'])
  expect(events).toMatchObject([
    { name: 'mcp.away', server: 'one', cause: 'refused, try 2' },
    { name: 'mcp.back', server: 'one' },
  ])
})

test('a caller that aborts passes the probe to the next caller', async () => {
  const { breaker, server, connect } = serverWith()
  await breaker.open(connect, { signal })
  server.isThere = false
  const leaving = new AbortController()
  const left = breaker.open(connect, { signal: leaving.signal })
  await expect.poll(() => breaker.outage).toBeDefined()
  const stayed = breaker.open(connect, { signal })
  leaving.abort(new Error('left'))
  await expect(left).rejects.toThrow('left')
  await triesOf(server, server.tries + 2)
  server.isThere = true
  expect(await stayed).toBe('connected')
})

test('after awayTimeoutMs waiting callers fail with the reason, and new callers probe the server', async () => {
  const { breaker, server, connect } = serverWith({ awayTimeoutMs: 20 })
  await breaker.open(connect, { signal })
  server.isThere = false
  const waiting = Array.from({ length: 3 }, () => breaker.open(connect, { signal }))
  for (const { status, reason } of (await Promise.allSettled(waiting)) as PromiseRejectedResult[]) {
    expect([status, reason]).toMatchObject(['rejected', { code: 'tool_infra', data: { awayMs: expect.any(Number) } }])
    expect(String(reason)).toMatch(/'one' has been away for \d+ ms, and rollouts wait 20 ms.*refused, try \d+/)
  }
  await expect(breaker.open(connect, { signal })).rejects.toThrow('has been away')
  server.isThere = true
  await expect.poll(() => breaker.open(connect, { signal }).catch(() => undefined)).toBe('connected')
  expect(breaker.outage).toBeUndefined()
})

test('a server that refuses the connection is not away, and waiting callers fail', async () => {
  const { breaker, server, connect } = serverWith()
  await breaker.open(connect, { signal })
  server.isThere = false
  const waiting = Array.from({ length: 3 }, () => breaker.open(connect, { signal }))
  await expect.poll(() => breaker.outage).toBeDefined()
  server.status = 401
  for (const each of waiting) await expect(each).rejects.toMatchObject({ data: { status: 401 } })
  expect(breaker.outage).toBeUndefined()
})

test('callers do not wait for an optional server, unless configured', async () => {
  const optional = serverWith({ required: false })
  await optional.breaker.open(optional.connect, { signal })
  optional.server.isThere = false
  await expect(optional.breaker.open(optional.connect, { signal })).rejects.toThrow('refused')
  expect([optional.breaker.waits, serverWith({ required: false, awayTimeoutMs: 1 }).breaker.waits]).toEqual([
    false,
    true,
  ])
})

test('a server that was open on another worker is away if it cannot be opened here', async () => {
  const { breaker, server, connect } = serverWith()
  server.isThere = false
  await expect(breaker.open(connect, { signal })).rejects.toThrow('refused')
  breaker.noteOpened()
  const waiting = breaker.open(connect, { signal })
  await expect.poll(() => breaker.outage).toBeDefined()
  server.isThere = true
  expect(await waiting).toBe('connected')
})

test.each([
  ['soon after it was back: the pauses go on growing', 60_000, ['left', 4]],
  ['long after it was back: the pauses begin anew', 0, ['connected', 5]],
])('a second outage of a server, %s', async (_, windowMs, expected) => {
  // No test lives to see the second pause.
  const probeBackoff = { firstMs: 1, factor: 1e8, maxMs: 1e8 }
  const config = { reconnect: { max: 3, windowMs } }
  const breaker = new ServerBreaker({ server: 'one', config, onEvent: () => {}, probeBackoff })
  let tried = 0
  const connect = async (): Promise<string> => {
    tried += 1
    await turn()
    // Opened, away once, back, and away once more.
    if (tried === 2 || tried === 4) throw new MillraceError('tool_infra', 'refused')
    return 'connected'
  }
  await breaker.open(connect, { signal })
  expect(await breaker.open(connect, { signal })).toBe('connected')
  const leaving = new AbortController()
  const onAway = () => {
    // A pause of a millisecond is over before this.
    setTimeout(() => leaving.abort(), 20)
    return () => {}
  }
  const end = await breaker.open(connect, { signal: leaving.signal, onAway }).catch(() => 'left')
  expect([end, tried]).toEqual(expected)
})

const broken = (): Promise<never> => Promise.reject(new Error('broken'))

test('without failures all starts run at once', async () => {
  const { breaker } = serverWith()
  let running = 0
  const { promise, resolve } = Promise.withResolvers<void>()
  const start = async (): Promise<void> => {
    running += 1
    await promise
  }
  const starts = [1, 2, 3].map(() => breaker.open(start, { signal }))
  await turn()
  expect(running).toBe(3)
  resolve()
  await Promise.all(starts)
})

test('after a failed start one caller tries again, and the others share the result', async () => {
  const { breaker } = serverWith()
  await expect(breaker.open(broken, { signal })).rejects.toMatchObject({ code: 'tool_infra', rawMessage: 'broken' })
  let tries = 0
  const attempt = (): Promise<unknown> =>
    breaker.open(
      () => {
        tries += 1
        return broken()
      },
      { signal },
    )
  const results = await Promise.allSettled(Array.from({ length: 20 }, attempt))
  expect(results.map(({ status }) => status)).toEqual(Array.from({ length: 20 }, () => 'rejected'))
  expect(tries).toBe(1)
})

test('after a successful start all callers continue', async () => {
  const { breaker } = serverWith()
  await expect(breaker.open(broken, { signal })).rejects.toThrow('broken')
  let tries = 0
  const fine = (): Promise<number> => {
    tries += 1
    return Promise.resolve(tries)
  }
  const results = await Promise.all(Array.from({ length: 5 }, () => breaker.open(fine, { signal })))
  expect(results.toSorted((left, right) => left - right)).toEqual([1, 2, 3, 4, 5])
})

test('parallel failed starts count as one; after too many, callers get the last error at once', async () => {
  const { breaker } = serverWith({ reconnect: { max: 1, windowMs: 60_000 } })
  await Promise.allSettled(Array.from({ length: 10 }, () => breaker.open(broken, { signal })))
  await expect(breaker.open(broken, { signal })).rejects.toThrow('broken')
  let tries = 0
  const attempt = breaker.open(
    () => {
      tries += 1
      return Promise.resolve()
    },
    { signal },
  )
  await expect(attempt).rejects.toThrow('broken')
  expect(tries).toBe(0)
})

test('a server that never started is tried again after the window', async () => {
  const { breaker } = serverWith({ reconnect: { max: 0, windowMs: 1 } })
  await expect(breaker.open(broken, { signal })).rejects.toThrow('broken')
  await expect.poll(() => breaker.open(() => Promise.resolve('here'), { signal }).catch(() => undefined)).toBe('here')
})

test('an aborted start is no evidence about the server, and the next caller tries', async () => {
  const { breaker } = serverWith()
  const leaving = new AbortController()
  const untilAbort = (): Promise<never> =>
    new Promise((_resolve, reject) => {
      leaving.signal.addEventListener('abort', () => reject(leaving.signal.reason as Error))
    })
  const first = breaker.open(untilAbort, { signal: leaving.signal })
  leaving.abort(new Error('left'))
  await expect(first).rejects.toThrow('left')
  // Not a failure: the next one starts without a pause.
  expect(await breaker.open(() => Promise.resolve(1), { signal })).toBe(1)
})

test('an aborted probe of a server that never started passes to the next caller', async () => {
  const { breaker } = serverWith()
  await expect(breaker.open(broken, { signal })).rejects.toThrow('broken')
  const leaving = new AbortController()
  const trial = breaker.open(broken, { signal: leaving.signal })
  const behind = breaker.open(() => Promise.resolve(2), { signal })
  leaving.abort(new Error('left too'))
  await expect(trial).rejects.toThrow('left too')
  expect(await behind).toBe(2)
})

test('attempts wait longer each time, and past the limit none is allowed until the window ends', () => {
  let now = 0
  const budget = new AttemptLimit({ max: 3, windowMs: 60_000 }, () => now)
  const waits = [budget.take(), budget.take(), budget.take()]
  expect(waits[0]).toBe(0)
  expect(waits[1]).toBeGreaterThan(0)
  expect(waits[2]).toBeGreaterThan(waits[1] ?? 0)
  expect(budget.waitMs).toBe(60_000)
  now = 59_999
  expect(budget.waitMs).toBe(1)
  now = 60_000
  expect(budget.waitMs).toBe(0)
  expect(budget.take()).toBe(0)
})

test('a limit of 0 never allows an attempt', () => {
  expect(new AttemptLimit({ max: 0, windowMs: 1000 }).waitMs).toBe(Number.POSITIVE_INFINITY)
})
