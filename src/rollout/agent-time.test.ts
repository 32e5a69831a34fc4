import { once } from 'node:events'
import { expect, test } from 'vitest'
import { MillraceError } from '../errors/index.ts'
import { AgentTime } from './agent-time.ts'
import { Tally } from './tally.ts'

const { signal } = new AbortController()

function timeOf({ doing, parent }: { doing?: string; parent?: AgentTime } = {}): AgentTime {
  const limits = { maxTurns: 1, timeoutMs: 60_000, wallTimeoutMs: 20, tailMs: 0 }
  return new AgentTime({ tally: new Tally(), tools: { doing } }, { limits, signal, parent })
}

async function endOf({ signal: end }: AgentTime): Promise<string> {
  if (!end.aborted) await once(end, 'abort')
  return MillraceError.from(end.reason, 'internal').rawMessage
}

test('whose child waits for the model when the clock runs out is told why', async () => {
  const time = timeOf({ doing: 'tool ask' })
  const child = timeOf({ parent: time })
  child.onWaitStart()
  child.onParked(new MillraceError('model_overloaded', 'it is busy'))
  expect(await endOf(time)).toBe(
    'its time on the clock is used up, in tool ask, while it waited for the model because a backend had failed: it is busy',
  )
  child.stop()
})

test('setup that takes all of the time does not wait for a model', async () => {
  const time = timeOf()
  time.onWaitStart()
  const hangs = Promise.withResolvers<void>()
  const setup = time.spentIn('setup', () => hangs.promise)
  expect(await endOf(time)).toBe('its time on the clock is used up, in setup')
  expect(time.cutOffIn).toBe('setup')
  hangs.resolve()
  await setup
})

test('the clock of an agent stands still while a call of it, or of a child, waits for a tool server', async () => {
  const time = timeOf({ doing: 'tool ask' })
  const child = timeOf({ parent: time })
  const why = new MillraceError('tool_infra', 'it does not answer')
  const opened = new MillraceError('tool_infra', 'it is opened again')
  const resume = [child.onServerAway(why), child.onServerAway(opened), child.onServerAway(why)]
  resume[0]?.()
  expect([time.budget.isWaiting, child.budget.isWaiting]).toEqual([true, true])
  expect(await endOf(time)).toBe(
    'its time on the clock is used up, in tool ask, while it waited for a tool server that is away: it does not answer',
  )
  resume[1]?.()
  resume[2]?.()
  expect([time.budget.isWaiting, child.budget.isWaiting]).toEqual([false, false])
  time.stop()
  child.stop()
})
