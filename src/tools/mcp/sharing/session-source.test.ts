import { setImmediate as turn } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { SessionPerRollout } from './session-source.ts'
import { SessionStand } from '../../../../test/support/tools/stand-in-session.ts'
import type { ServerEvent } from '../session/server-events.ts'
import { ServerBreaker } from '../session/server-breaker.ts'

const never = new AbortController().signal

function perRollout() {
  const stand = new SessionStand()
  const events: ServerEvent[] = []
  const onEvent = (event: ServerEvent) => events.push(event)
  const breaker = new ServerBreaker({ server: 'one', config: {}, onEvent })
  const source = new SessionPerRollout({ makeSession: stand.make, breaker, onEvent })
  return { stand, source, events }
}

test('each rollout has its own session, which ends when it is given back', async () => {
  const { stand, source } = perRollout()
  const held = [await source.take(never), await source.take(never)]
  expect(stand.states).toEqual(['open', 'open'])
  held[0]?.giveBack('used')
  expect(stand.states).toEqual(['closed', 'open'])
  await source.close()
  expect(stand.states).toEqual(['closed', 'closed'])
})

test('only close waits for sessions to end, and reports those that fail to end', async () => {
  const { stand, source } = perRollout()
  const held = [await source.take(never), await source.take(never)]
  stand.ends = 'badly'
  expect(held[0]?.giveBack('used')).toBeUndefined()
  await turn()
  stand.ends = 'held'
  expect(held[1]?.giveBack('used')).toBeUndefined()
  expect(stand.states).toEqual(['closing', 'closing'])
  let isClosed = false
  const closing = source.close().finally(() => {
    isClosed = true
  })
  await turn()
  expect(isClosed).toBe(false)
  stand.sessions[1]?.end()
  await expect(closing).rejects.toThrow('end 1 failed')
})

test('a rollout does not wait for the end of a lost spare session', async () => {
  const { stand, source } = perRollout()
  await source.warm()
  const [spare] = stand.sessions
  if (spare) spare.state = 'opening'
  stand.ends = 'held'
  expect((await source.take(never)).session).toBe(stand.sessions[1])
  stand.ends = 'well'
  spare?.end()
  await source.close()
})

test('session events go to the rollout that holds the session, including its opening', async () => {
  const { stand, source, events } = perRollout()
  const opened = { name: 'mcp.open', server: 'one', ok: true, ms: 1 } as const
  const told: ServerEvent[] = []
  stand.starts = 'held'
  const taking = source.take(never, (event) => told.push(event))
  await expect.poll(() => stand.states).toEqual(['opening'])
  const [session] = stand.sessions
  session?.tell(opened)
  session?.start()
  const held = await taking
  expect([told, events]).toEqual([[opened], []])
  held.giveBack('unused')
  session?.tell(opened)
  expect([told, events]).toEqual([[opened], [opened]])
  // The next one says nothing of events: they are the owner's then.
  await source.take(never)
  session?.tell(opened)
  expect([told, events]).toEqual([[opened], [opened, opened]])
  await source.close()
})

test('warm() opens one session ahead, and an unused session is reused', async () => {
  const { stand, source } = perRollout()
  await Promise.all([source.warm(), source.warm()])
  expect(stand.states).toEqual(['open'])
  const first = await source.take(never)
  expect(first.session).toBe(stand.sessions[0])
  first.giveBack('unused')
  const again = await source.take(never)
  expect(again.session).toBe(stand.sessions[0])
  again.giveBack('used')
  await source.close()
})

test('a session that was lost while it was spare is not handed out', async () => {
  const { stand, source } = perRollout()
  await source.warm()
  const [spare] = stand.sessions
  if (spare) spare.state = 'closed'
  expect((await source.take(never)).session).toBe(stand.sessions[1])
  await source.close()
})

test('a failed opening is reported to the caller, and the session is closed', async () => {
  const { stand, source } = perRollout()
  stand.starts = 'badly'
  await source.warm()
  await expect(source.take(never)).rejects.toThrow('start 2 failed')
  expect(stand.states).toEqual(['closed', 'closed'])
  stand.starts = 'well'
  expect(await source.take(never)).toBeDefined()
  await source.close()
})

test('closing ends opening and held sessions, and reports those that fail to end', async () => {
  const { stand, source } = perRollout()
  await source.take(never)
  stand.starts = 'held'
  const opening = source.take(source.closedSignal)
  stand.ends = 'badly'
  const closing = source.close()
  expect(source.close()).toBe(closing)
  await expect(opening).rejects.toThrow()
  await expect(closing).rejects.toBeInstanceOf(AggregateError)
  await expect(source.take(never)).rejects.toMatchObject({ code: 'closed' })
})
