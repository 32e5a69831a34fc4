import { describe, expect, test, vi } from 'vitest'
import { defaultLimits, type Limits, type Usage } from '../schema/index.ts'
import { BudgetMeter, type SpentLimit } from './budget-meter.ts'
import type { KeptChild } from './kept-children.ts'

const output = (tokens: number): Usage => ({ calls: 1, input: 0, cachedInput: 0, output: tokens, reasoning: 0 })

function meter(limits: Partial<Limits>, parent?: BudgetMeter): { budget: BudgetMeter; spent: SpentLimit[] } {
  const spent: SpentLimit[] = []
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
  test('turns, tokens and money run out by name', () => {
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

  test('a child spends what its parent has, and has no more than its parent', () => {
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

  test('children of one turn that are taken over have worked as long as the longest', () => {
    using _time = fakeTime()
    const { budget } = meter({ timeoutMs: 10_000 })
    const child = (workingMs: number): KeptChild => ({
      turns: 1,
      usage: output(1),
      judgeUsage: output(0),
      cost: null,
      toolCalls: 0,
      toolErrors: 0,
      toolRepairs: 0,
      children: 0,
      workingMs,
    })
    for (const ms of [400, 700, 500]) budget.takeOver(child(ms), 1)
    expect(budget.workingMsLeft).toBe(9_300)
    budget.takeOver(child(200), 2)
    expect(budget.workingMsLeft).toBe(9_100)
    budget.stop()
  })

  test('the tail is not the agent’s: the wall clock ends it earlier', () => {
    using time = fakeTime()
    const { budget, spent } = meter({ timeoutMs: 60_000, wallTimeoutMs: 10_000, tailMs: 1_000 })
    time.advance(9_001)
    expect(spent).toEqual(['wall'])
    budget.stop()
  })

  test('time worked in an earlier sitting counts; wall time starts anew', () => {
    using time = fakeTime()
    const { budget, spent } = meter({ timeoutMs: 1_000 })
    budget.carryWorkingTime(900)
    time.advance(101)
    expect(spent).toEqual(['time'])
    budget.stop()
  })

  test('stopped, it leaves no timer, even if a wait ends afterwards', () => {
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
