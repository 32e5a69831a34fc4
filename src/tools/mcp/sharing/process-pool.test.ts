import { setImmediate as turn } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { ProcessPool, type ProcessPoolOptions } from './process-pool.ts'
import type { SessionLease } from './session-source.ts'
import { SessionStand } from '../../../../test/support/tools/stand-in-session.ts'
import type { ServerEvent } from '../session/server-events.ts'
import { ServerBreaker } from '../session/server-breaker.ts'

const never = new AbortController().signal

function poolOf(options: Partial<ProcessPoolOptions> = {}) {
  const stand = new SessionStand()
  const recycled: string[] = []
  const events: ServerEvent[] = []
  const pool = new ProcessPool({
    makeSession: stand.make,
    onEvent: (event) => events.push(event),
    onRecycle: (why) => recycled.push(why),
    breaker: new ServerBreaker({ server: 'one', config: {}, onEvent: () => {} }),
    ...options,
  })
  return {
    stand,
    pool,
    recycled,
    events,
    async [Symbol.asyncDispose]() {
      stand.ends = 'well'
      for (const session of stand.sessions) session.end()
      await pool.close().catch(() => {})
    },
  }
}

const numberOf = async ({ session }: SessionLease): Promise<string> => {
  const { content } = await session.call({ tool: 'x', arguments: {}, signal: never })
  return String(content)
}

test('a process started ahead is taken, and the next one is started at once', async () => {
  await using setup = poolOf({ warm: 1 })
  const { pool, stand } = setup
  await pool.warm()
  expect(stand.states).toEqual(['open'])
  stand.starts = 'held'
  expect(await numberOf(await pool.take(never))).toBe('1')
  await expect.poll(() => stand.states).toEqual(['open', 'opening'])
})

test('each rollout has its own process, which ends when it is given back', async () => {
  await using setup = poolOf({ warm: 0 })
  const { pool, stand, recycled } = setup
  const first = await pool.take(never)
  const second = await pool.take(never)
  expect([await numberOf(first), await numberOf(second)]).toEqual(['1', '2'])
  first.giveBack('used')
  expect(stand.states).toEqual(['closed', 'open'])
  expect(recycled).toEqual(['uses'])
})

test('at most max processes run: rollouts wait in order, and a process counts until it is gone', async () => {
  await using setup = poolOf({ warm: 1, max: 2 })
  const { pool, stand } = setup
  const held = [await pool.take(never), await pool.take(never)]
  const served: string[] = []
  const waiting = ['c', 'd'].map(async (name) => served.push(`${name}${await numberOf(await pool.take(never))}`))
  await turn()
  expect(stand.sessions).toHaveLength(2)
  stand.ends = 'held'
  held[0]?.giveBack('used')
  await turn()
  expect(stand.states).toEqual(['closing', 'open'])
  stand.sessions[0]?.end()
  await waiting[0]
  held[1]?.giveBack('used')
  stand.sessions[1]?.end()
  await waiting[1]
  expect(served).toEqual(['c3', 'd4'])
})

test('a rollout that leaves the queue loses its place, and the process goes to the next', async () => {
  await using setup = poolOf({ warm: 0, max: 1 })
  const { pool, stand } = setup
  stand.starts = 'held'
  const leaving = new AbortController()
  const left = pool.take(leaving.signal)
  const stayed = pool.take(never)
  leaving.abort(new Error('cancelled'))
  await expect(left).rejects.toThrow('cancelled')
  stand.sessions[0]?.start()
  expect(await numberOf(await stayed)).toBe('1')
  await expect(pool.take(leaving.signal)).rejects.toThrow('cancelled')
})

test('a process without a waiting rollout is kept if one is wanted ahead, and ended if not', async () => {
  await using setup = poolOf({ warm: 1 })
  const { pool, stand } = setup
  stand.starts = 'held'
  const leaving = new AbortController()
  const left = pool.take(leaving.signal)
  leaving.abort(new Error('cancelled'))
  await expect(left).rejects.toThrow('cancelled')
  for (const session of stand.sessions) session.start()
  await expect.poll(() => stand.states).toEqual(['open', 'closed'])
})

test('a process serves up to maxUses rollouts, but none after one whose calls still run', async () => {
  await using setup = poolOf({ warm: 0, maxUses: 2 })
  const { pool, stand, recycled } = setup
  const first = await pool.take(never)
  first.giveBack('used')
  const second = await pool.take(never)
  expect(await numberOf(second)).toBe('1')
  expect(stand.sessions[0]?.holds).toBe(2)
  second.giveBack('used')
  expect(recycled).toEqual(['uses'])
  const third = await pool.take(never)
  expect(await numberOf(third)).toBe('2')
  third.giveBack('busy')
  expect(await numberOf(await pool.take(never))).toBe('3')
})

test('process events go to the rollout that holds it, and to the owner before and after', async () => {
  await using setup = poolOf({ warm: 0, max: 1, maxUses: 2 })
  const { pool, stand, events } = setup
  const circuitOpen = (cause: string) => ({ name: 'mcp.circuit_open', server: 'one', cause }) as const
  const tell = (cause: string) => stand.sessions[0]?.tell(circuitOpen(cause))
  const [first, second]: ServerEvent[][] = [[], []]
  const held = await pool.take(never, (event) => first?.push(event))
  tell('first')
  // This one waits for what the first one has.
  const next = pool.take(never, (event) => second?.push(event))
  tell('first still')
  held.giveBack('used')
  const again = await next
  tell('second')
  again.giveBack('used')
  tell('nobody')
  expect(first).toEqual([circuitOpen('first'), circuitOpen('first still')])
  expect(second).toEqual([circuitOpen('second')])
  expect(events).toEqual([circuitOpen('nobody')])
})

test('a process that was given back unused can be taken again', async () => {
  await using setup = poolOf({ warm: 1 })
  const { pool, stand, recycled } = setup
  const held = await pool.take(never)
  await expect.poll(() => stand.states).toEqual(['open', 'open'])
  held.giveBack('unused')
  // Two are one more than is wanted ahead.
  expect([stand.states, recycled]).toEqual([['closed', 'open'], []])
  const only = await pool.take(never)
  only.giveBack('unused')
  expect(recycled).toEqual([])
})

test('a process that died in the pool is not handed out', async () => {
  await using setup = poolOf({ warm: 1 })
  const { pool, stand } = setup
  await pool.warm()
  const [first] = stand.sessions
  if (first) first.state = 'closed'
  expect(await numberOf(await pool.take(never))).not.toBe('1')
})

test('V2.6 a process that is idle or alive too long is ended', async () => {
  await using idle = poolOf({ warm: 1, idleMs: 1 })
  await idle.pool.warm()
  await expect.poll(() => idle.recycled).toEqual(['idle'])
  // Not started again until somebody asks.
  await turn()
  expect(idle.stand.states).toEqual(['closed'])
  expect(await numberOf(await idle.pool.take(never))).toBe('2')

  await using old = poolOf({ warm: 0, maxUses: 9, maxLifetimeMs: 0 })
  const held = await old.pool.take(never)
  await turn()
  held.giveBack('used')
  expect(old.recycled).toEqual(['lifetime'])
})

test('a failed start is reported to the waiting rollout, and not repeated without one', async () => {
  await using setup = poolOf({ warm: 2 })
  const { pool, stand } = setup
  stand.starts = 'badly'
  await pool.warm()
  expect(stand.sessions).toHaveLength(2)
  await turn()
  expect(stand.sessions).toHaveLength(2)
  await expect(pool.take(never)).rejects.toThrow(/start \d failed/)
  stand.starts = 'well'
  expect(await pool.take(never)).toBeDefined()
})

test('closing ends waiting, starting, held and ready processes, and may be repeated', async () => {
  await using setup = poolOf({ warm: 1, max: 2 })
  const { pool, stand } = setup
  await pool.take(never)
  expect(stand.states).toEqual(['open', 'open'])
  await pool.take(never)
  stand.starts = 'held'
  const waiting = pool.take(never)
  const closing = pool.close()
  expect(pool.close()).toBe(closing)
  await expect(waiting).rejects.toMatchObject({ code: 'closed' })
  await closing
  expect(stand.states).toEqual(['closed', 'closed'])
  await expect(pool.take(never)).rejects.toMatchObject({ code: 'closed' })
})

test('closing ends a starting process', async () => {
  await using setup = poolOf({ warm: 0 })
  const { pool, stand } = setup
  stand.starts = 'held'
  const waiting = pool.take(never)
  await Promise.all([pool.close(), expect(waiting).rejects.toMatchObject({ code: 'closed' })])
  expect(stand.states).toEqual(['closed'])
})

test('V2.4 close reports a process that does not end, and ends the others', async () => {
  await using setup = poolOf({ warm: 0 })
  const { pool, stand } = setup
  const held = [await pool.take(never), await pool.take(never)]
  stand.ends = 'badly'
  held[0]?.giveBack('used')
  await turn()
  stand.ends = 'well'
  await expect(pool.close()).rejects.toThrow('end 1 failed')
  expect(stand.states).toEqual(['closing', 'closed'])
})
