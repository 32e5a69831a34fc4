import { setImmediate as turn } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { StartBudget } from './_start-budget.ts'

const never = new AbortController().signal
const broken = (): Promise<never> => Promise.reject(new Error('broken'))

test('while nothing failed everybody starts at once', async () => {
  const budget = new StartBudget()
  let running = 0
  const { promise, resolve } = Promise.withResolvers<void>()
  const starts = [1, 2, 3].map(() =>
    budget.start(async () => {
      running += 1
      await promise
    }, never),
  )
  await turn()
  expect(running).toBe(3)
  resolve()
  await Promise.all(starts)
})

test('after a failure one tries again and the others share what comes of it', async () => {
  const budget = new StartBudget()
  await expect(budget.start(broken, never)).rejects.toMatchObject({ code: 'tool_infra', rawMessage: 'broken' })
  let tries = 0
  const attempt = (): Promise<unknown> =>
    budget.start(() => {
      tries += 1
      return broken()
    }, never)
  const results = await Promise.allSettled(Array.from({ length: 20 }, attempt))
  expect(results.map(({ status }) => status)).toEqual(Array.from({ length: 20 }, () => 'rejected'))
  expect(tries).toBe(1)
})

test('after one that went well all go on', async () => {
  const budget = new StartBudget()
  await expect(budget.start(broken, never)).rejects.toThrow('broken')
  let tries = 0
  const fine = (): Promise<number> => {
    tries += 1
    return Promise.resolve(tries)
  }
  const results = await Promise.all(Array.from({ length: 5 }, () => budget.start(fine, never)))
  expect(results.toSorted((left, right) => left - right)).toEqual([1, 2, 3, 4, 5])
})

test('failures side by side count as one; past the budget callers get the last one without a try', async () => {
  const budget = new StartBudget({ max: 1, windowMs: 60_000 })
  await Promise.allSettled(Array.from({ length: 10 }, () => budget.start(broken, never)))
  expect(budget.isSpent).toBe(false)
  await expect(budget.start(broken, never)).rejects.toThrow('broken')
  expect(budget.isSpent).toBe(true)
  let tries = 0
  const attempt = budget.start(() => {
    tries += 1
    return Promise.resolve()
  }, never)
  await expect(attempt).rejects.toThrow('broken')
  expect(tries).toBe(0)
})

test('the budget is there again after its window', async () => {
  const budget = new StartBudget({ max: 0, windowMs: 1 })
  await expect(budget.start(broken, never)).rejects.toThrow('broken')
  await expect.poll(() => budget.isSpent).toBe(false)
  expect(await budget.start(() => Promise.resolve('here'), never)).toBe('here')
})

test('whoever leaves says nothing about the server, and leaves the try to the next', async () => {
  const budget = new StartBudget()
  const leaving = new AbortController()
  const untilAbort = (): Promise<never> =>
    new Promise((_resolve, reject) => {
      leaving.signal.addEventListener('abort', () => reject(leaving.signal.reason as Error))
    })
  const first = budget.start(untilAbort, leaving.signal)
  leaving.abort(new Error('left'))
  await expect(first).rejects.toThrow('left')
  // Not a failure: the next one starts without a pause.
  expect(await budget.start(() => Promise.resolve(1), never)).toBe(1)

  await expect(budget.start(broken, never)).rejects.toThrow('broken')
  const leavingToo = new AbortController()
  const trial = budget.start(broken, leavingToo.signal)
  const behind = budget.start(() => Promise.resolve(2), never)
  leavingToo.abort(new Error('left too'))
  await expect(trial).rejects.toThrow('left too')
  expect(await behind).toBe(2)
})
