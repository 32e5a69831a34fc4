import { once } from 'node:events'
import { describe, expect, test, vi } from 'vitest'
import { MillraceError } from '../../errors/index.ts'
import { defaultLimits, type Limits, type Usage } from '../../schema/index.ts'
import { AgentTime, BudgetMeter, type ExhaustedLimit, Tally } from './budget.ts'

const output = (tokens: number): Usage => ({ calls: 1, input: 0, cachedInput: 0, output: tokens, reasoning: 0 })

function meter(limits: Partial<Limits>, parent?: BudgetMeter): { budget: BudgetMeter; spent: ExhaustedLimit[] } {
  const spent: ExhaustedLimit[] = []
  const budget = new BudgetMeter({
    limits: { ...defaultLimits, ...limits },
    parent,
    onSpent: (limit) => spent.push(limit),
  })
  return { budget, spent }
}

/** Fake clocks for one test, real ones again at its end. */
function fakeTime(): Disposable & { advance(ms: number): void } {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] })
  return { advance: (ms) => void vi.advanceTimersByTime(ms), [Symbol.dispose]: () => void vi.useRealTimers() }
}

describe('BudgetMeter', () => {
  test('the limit that is exhausted is named: turns, tokens or money', () => {
    const { budget } = meter({ maxTurns: 2, maxTokens: 10, maxCostUsd: 1 })
    budget.startTurn()
    expect(budget.turnsLeft).toBe(1)
    budget.charge(output(10), 0.25)
    expect(() => budget.startTurn()).toThrow(
      expect.objectContaining({ code: 'budget_exhausted', data: { limit: 'tokens' } }),
    )
    const money = meter({ maxCostUsd: 1 }).budget
    money.charge(output(1), 1)
    expect(() => money.startTurn()).toThrow(expect.objectContaining({ data: { limit: 'cost' } }))
    const turns = meter({ maxTurns: 1 }).budget
    turns.startTurn()
    expect(() => turns.startTurn()).toThrow(expect.objectContaining({ data: { limit: 'turns' } }))
    for (const each of [budget, money, turns]) each.stop()
  })

  test('a child spends the budget of its parent and cannot exceed it', () => {
    const { budget: parent } = meter({ maxTurns: 3, maxTokens: 100 })
    const { budget: child } = meter({ maxTurns: 50 }, parent)
    child.startTurn()
    child.charge(output(90), null)
    expect(parent.turnsLeft).toBe(2)
    expect(parent.tokensLeft).toBe(10)
    expect(child.tokensLeft).toBe(10)
    child.startTurn()
    child.startTurn()
    expect(() => child.startTurn()).toThrow(expect.objectContaining({ data: { limit: 'turns' } }))
    child.stop()
    parent.stop()
  })

  test('waiting for capacity stops the working clock, not the wall clock', () => {
    using time = fakeTime()
    const { budget, spent } = meter({ timeoutMs: 1_000, wallTimeoutMs: 10_000, tailMs: 1_000 })
    time.advance(600)
    budget.startWait()
    budget.startWait()
    time.advance(5_000)
    budget.endWait()
    expect(spent).toEqual([])
    budget.endWait()
    expect(budget.workingMsLeft).toBe(400)
    expect(budget.wallMsLeft).toBe(3_400)
    time.advance(401)
    expect(spent).toEqual(['time'])
    budget.stop()
  })

  test('the wall clock stops the agent before the tail reserved after it', () => {
    using time = fakeTime()
    const { budget, spent } = meter({ timeoutMs: 60_000, wallTimeoutMs: 10_000, tailMs: 1_000 })
    time.advance(9_001)
    expect(spent).toEqual(['wall'])
    budget.stop()
  })

  test('working time of an earlier launch counts; wall time starts again', () => {
    using time = fakeTime()
    const { budget, spent } = meter({ timeoutMs: 1_000 })
    budget.carryWorkingTime(900)
    time.advance(101)
    expect(spent).toEqual(['time'])
    budget.stop()
  })

  test('a stopped meter leaves no timer, even if a wait ends afterwards', () => {
    using time = fakeTime()
    const { budget, spent } = meter({ timeoutMs: 100 })
    budget.startWait()
    budget.stop()
    budget.endWait()
    expect(vi.getTimerCount()).toBe(0)
    time.advance(10_000)
    expect(spent).toEqual([])
  })
})

const { signal } = new AbortController()

function timeOf({ doing, parent }: { doing?: string; parent?: AgentTime } = {}): AgentTime {
  const limits = { maxTurns: 1, timeoutMs: 60_000, wallTimeoutMs: 20, tailMs: 0 }
  return new AgentTime({ tally: new Tally(), tools: { doing } }, { limits, signal, parent })
}

async function endOf({ signal: end }: AgentTime): Promise<string> {
  if (!end.aborted) await once(end, 'abort')
  return MillraceError.from(end.reason, 'internal').rawMessage
}

test('an agent whose child waits for the model at the wall-clock limit gives that reason', async () => {
  const time = timeOf({ doing: 'tool ask' })
  const child = timeOf({ parent: time })
  child.onWaitStart()
  child.onParked(new MillraceError('model_overloaded', 'it is busy'))
  expect(await endOf(time)).toBe(
    'the wall-clock limit is reached, in tool ask, while it waited for the model because a backend had failed: it is busy',
  )
  child.stop()
})

test('an agent whose setup takes all its time does not report a wait for the model', async () => {
  const time = timeOf()
  time.onWaitStart()
  const hangs = Promise.withResolvers<void>()
  const setup = time.spentIn('setup', () => hangs.promise)
  expect(await endOf(time)).toBe('the wall-clock limit is reached, in setup')
  expect(time.cutOffIn).toBe('setup')
  hangs.resolve()
  await setup
})

test('the working clock stops while a call of the agent or a child waits for a tool server', async () => {
  const time = timeOf({ doing: 'tool ask' })
  const child = timeOf({ parent: time })
  const why = new MillraceError('tool_infra', 'it does not answer')
  const opened = new MillraceError('tool_infra', 'it is opened again')
  const resume = [child.onServerAway(why), child.onServerAway(opened), child.onServerAway(why)]
  resume[0]?.()
  expect([time.budget.isWaiting, child.budget.isWaiting]).toEqual([true, true])
  expect(await endOf(time)).toBe(
    'the wall-clock limit is reached, in tool ask, while it waited for a tool server that is away: it does not answer',
  )
  resume[1]?.()
  resume[2]?.()
  expect([time.budget.isWaiting, child.budget.isWaiting]).toEqual([false, false])
  time.stop()
  child.stop()
})
