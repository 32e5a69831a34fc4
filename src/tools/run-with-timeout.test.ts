import { expect, test } from 'vitest'
import { runWithTimeout } from './run-with-timeout.ts'

test('runWithTimeout() returns the result of the task', () => {
  expect(runWithTimeout(10_000, () => [1, 2])).toEqual([1, 2])
})

test('an endless task is stopped, and the next task runs normally', () => {
  let rounds = 0
  const never = (): string => {
    for (;;) rounds += 1
  }
  expect(runWithTimeout(20, never)).toBeUndefined()
  const after = rounds
  expect(runWithTimeout(10_000, () => 'next')).toBe('next')
  expect(rounds).toBe(after)
})

test('a task that catches every error is stopped', () => {
  const stubborn = (): void => {
    for (;;) {
      try {
        for (;;);
      } catch {
        continue
      }
    }
  }
  expect(runWithTimeout(20, stubborn)).toBeUndefined()
})

test('the error of a task is rethrown as the same object', () => {
  const error = new RangeError('mine')
  const thrown = (): never => {
    throw error
  }
  expect(() => runWithTimeout(10_000, thrown)).toThrow(error)
})
