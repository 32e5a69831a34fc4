import { expect, test } from 'vitest'
import { inTurns } from './in-turns.ts'

test('all of them come, in order, and others get their turn in between', async () => {
  let turns = 0
  const count = (): void => {
    turns += 1
    immediate = setImmediate(count)
  }
  let immediate = setImmediate(count)
  const numbers = Array.from({ length: 1_000 }, (_, index) => index)
  expect(await Array.fromAsync(inTurns(numbers))).toEqual(numbers)
  clearImmediate(immediate)
  expect(turns).toBeGreaterThanOrEqual(3)
})
