import { expect, test } from 'vitest'
import { ReconnectBudget } from './_reconnect-budget.ts'

test('the first attempt waits for nothing, later ones longer and longer, and past the last there is none for a while', () => {
  let now = 0
  const budget = new ReconnectBudget({ max: 3, windowMs: 60_000 }, () => now)
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

test('a budget of none never allows any', () => {
  expect(new ReconnectBudget({ max: 0, windowMs: 1000 }).waitMs).toBe(Number.POSITIVE_INFINITY)
})
