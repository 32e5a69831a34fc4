import { expect, test } from 'vitest'
import { descriptorBudget } from './descriptor-budget.ts'

test('half of what is left above the reserve', () => {
  expect(descriptorBudget(1024)).toBe(480)
  expect(descriptorBudget(256)).toBe(96)
  expect(descriptorBudget(10)).toBe(1)
})

test('this machine has some', () => {
  expect(descriptorBudget()).toBeGreaterThan(0)
})
