import { expect, test } from 'vitest'
import { roundedSum } from './rounded-sum.ts'

test.each([
  [0.7 + 0.2 + 0.1, 1],
  [3, 3],
  [-0, 0],
  [-2.5, -2.5],
  [1_234_567_890_123, 1_234_567_890_120],
])('%d is written %d', (sum, written) => {
  expect(roundedSum(sum)).toBe(written)
})
