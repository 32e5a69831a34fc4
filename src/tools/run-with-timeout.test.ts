import { expect, test } from 'vitest'
import { runWithTimeout } from './run-with-timeout.ts'

test('gives what the task comes to', () => {
  expect(runWithTimeout(10_000, () => [1, 2])).toEqual([1, 2])
})

test('stops a task that never ends, and the next one runs as if nothing had been', () => {
  let rounds = 0
  const never = (): string => {
    for (;;) rounds += 1
  }
  expect(runWithTimeout(20, never)).toBeUndefined()
  const after = rounds
  expect(runWithTimeout(10_000, () => 'next')).toBe('next')
  expect(rounds).toBe(after)
})

test('also one that catches whatever is thrown at it', () => {
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

test('passes on what a task throws, the very same', () => {
  const error = new RangeError('mine')
  const thrown = (): never => {
    throw error
  }
  expect(() => runWithTimeout(10_000, thrown)).toThrow(error)
})
