import { setImmediate as turn } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { MillraceError } from '../../../errors/index.ts'
import type { ServerOptions } from '../config/server-config.ts'
import type { ServerEvent } from './server-events.ts'
import { ServerGate } from './server-gate.ts'

const { signal } = new AbortController()

/** A server that a test takes away and brings back, and a gate before it. */
function serverWith(config: ServerOptions = {}) {
  const events: ServerEvent[] = []
  const probeBackoff = { firstMs: 1, factor: 1, maxMs: 1 }
  const gate = new ServerGate({ server: 'one', config, onEvent: (event) => events.push(event), probeBackoff })
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
  return { gate, server, events, connect }
}

const triesOf = (server: { tries: number }, count: number) => expect.poll(() => server.tries).toBeGreaterThan(count)

test('a server that was never open fails its callers', async () => {
  const { gate, server, events, connect } = serverWith()
  server.isThere = false
  await expect(gate.open(connect, { signal })).rejects.toMatchObject({
    code: 'tool_infra',
    rawMessage: 'refused, try 1',
  })
  expect(gate.outage).toBeUndefined()
  expect(events).toEqual([])
})

test('callers wait for a server that was open; one of them at a time probes it, and then all go on', async () => {
  const { gate, server, events, connect } = serverWith()
  await gate.open(connect, { signal })
  server.isThere = false
  const waits: string[] = []
  const onAway = (why: MillraceError) => {
    waits.push(why.rawMessage)
    return () => waits.push('over')
  }
  const first = gate.open(connect, { signal, onAway })
  await expect.poll(() => gate.outage?.why.rawMessage).toContain('refused')
  server.mostAtOnce = 0
  const others = Array.from({ length: 20 }, () => gate.open(connect, { signal }))
  const { tries } = server
  await triesOf(server, tries + 3)
  expect(server.mostAtOnce).toBe(1)
  server.isThere = true
  expect(await Promise.all([first, ...others])).toEqual(Array.from({ length: 21 }, () => 'connected'))
  expect(gate.outage).toBeUndefined()
  expect(waits).toEqual(['refused, try 2', 'over'])
  expect(events).toMatchObject([
    { name: 'mcp.away', server: 'one', cause: 'refused, try 2' },
    { name: 'mcp.back', server: 'one' },
  ])
})

test('a caller that leaves hands the probe over to the next', async () => {
  const { gate, server, connect } = serverWith()
  await gate.open(connect, { signal })
  server.isThere = false
  const leaving = new AbortController()
  const left = gate.open(connect, { signal: leaving.signal })
  await expect.poll(() => gate.outage).toBeDefined()
  const stayed = gate.open(connect, { signal })
  leaving.abort(new Error('left'))
  await expect(left).rejects.toThrow('left')
  await triesOf(server, server.tries + 2)
  server.isThere = true
  expect(await stayed).toBe('connected')
})

test('after awayTimeoutMs callers fail with the reason, but the server is still probed by those that come', async () => {
  const { gate, server, connect } = serverWith({ awayTimeoutMs: 20 })
  await gate.open(connect, { signal })
  server.isThere = false
  const waiting = Array.from({ length: 3 }, () => gate.open(connect, { signal }))
  for (const { status, reason } of (await Promise.allSettled(waiting)) as PromiseRejectedResult[]) {
    expect([status, reason]).toMatchObject(['rejected', { code: 'tool_infra', data: { awayMs: expect.any(Number) } }])
    expect(String(reason)).toMatch(/'one' has been away for \d+ ms, and rollouts wait 20 ms.*refused, try \d+/)
  }
  await expect(gate.open(connect, { signal })).rejects.toThrow('has been away')
  server.isThere = true
  await expect.poll(() => gate.open(connect, { signal }).catch(() => undefined)).toBe('connected')
  expect(gate.outage).toBeUndefined()
})

test('a server that refuses us is not away, and nobody waits for it any longer', async () => {
  const { gate, server, connect } = serverWith()
  await gate.open(connect, { signal })
  server.isThere = false
  const waiting = Array.from({ length: 3 }, () => gate.open(connect, { signal }))
  await expect.poll(() => gate.outage).toBeDefined()
  server.status = 401
  for (const each of waiting) await expect(each).rejects.toMatchObject({ data: { status: 401 } })
  expect(gate.outage).toBeUndefined()
})

test('a server that rollouts can do without is not waited for, unless that is configured', async () => {
  const optional = serverWith({ required: false })
  await optional.gate.open(optional.connect, { signal })
  optional.server.isThere = false
  await expect(optional.gate.open(optional.connect, { signal })).rejects.toThrow('refused')
  expect([optional.gate.waits, serverWith({ required: false, awayTimeoutMs: 1 }).gate.waits]).toEqual([false, true])
})

test('a server that was open on another worker is away if it cannot be opened here', async () => {
  const { gate, server, connect } = serverWith()
  server.isThere = false
  await expect(gate.open(connect, { signal })).rejects.toThrow('refused')
  gate.noteOpened()
  const waiting = gate.open(connect, { signal })
  await expect.poll(() => gate.outage).toBeDefined()
  server.isThere = true
  expect(await waiting).toBe('connected')
})

test.each([
  ['soon after it was back: the pauses go on growing', 60_000, ['left', 4]],
  ['long after it was back: the pauses begin anew', 0, ['connected', 5]],
])('a server is away again, %s', async (_, windowMs, expected) => {
  // No test lives to see the second pause.
  const probeBackoff = { firstMs: 1, factor: 1e8, maxMs: 1e8 }
  const config = { reconnect: { max: 3, windowMs } }
  const gate = new ServerGate({ server: 'one', config, onEvent: () => {}, probeBackoff })
  let tried = 0
  const connect = async (): Promise<string> => {
    tried += 1
    await turn()
    // Opened, away once, back, and away once more.
    if (tried === 2 || tried === 4) throw new MillraceError('tool_infra', 'refused')
    return 'connected'
  }
  await gate.open(connect, { signal })
  expect(await gate.open(connect, { signal })).toBe('connected')
  const leaving = new AbortController()
  const onAway = () => {
    // A pause of a millisecond is over before this.
    setTimeout(() => leaving.abort(), 20)
    return () => {}
  }
  const end = await gate.open(connect, { signal: leaving.signal, onAway }).catch(() => 'left')
  expect([end, tried]).toEqual(expected)
})
