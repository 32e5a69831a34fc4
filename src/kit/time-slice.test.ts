import { expect, test } from 'vitest'
import { TimeSlice } from './time-slice.ts'

const numbers = Array.from({ length: 1_000 }, (_, index) => index)

/** How many turns others had while all of them came, in order. */
async function turnsDuring(slice: TimeSlice): Promise<number> {
  let turns = 0
  const count = (): void => {
    turns += 1
    immediate = setImmediate(count)
  }
  let immediate = setImmediate(count)
  expect(await Array.fromAsync(slice.over(numbers))).toEqual(numbers)
  clearImmediate(immediate)
  return turns
}

test('others get their turn when it is over, and not before', async () => {
  expect(await turnsDuring(new TimeSlice(0))).toBeGreaterThanOrEqual(numbers.length - 1)
  expect(await turnsDuring(new TimeSlice(Infinity))).toBe(0)
})
