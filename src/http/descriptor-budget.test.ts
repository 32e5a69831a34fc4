import { expect, test } from 'vitest'
import { descriptorBudget } from './descriptor-budget.ts'

test('half of what is left above the reserve', () => {
  expect(descriptorBudget({ softLimit: 1024 })).toBe(480)
  expect(descriptorBudget({ softLimit: 256 })).toBe(96)
  expect(descriptorBudget({ softLimit: 10 })).toBe(1)
})

test('the threads of a process divide it, and each has at least one', () => {
  expect(descriptorBudget({ softLimit: 1024, workers: 4 })).toBe(120)
  expect(descriptorBudget({ softLimit: 256, workers: 1000 })).toBe(1)
})

test('this machine has some', () => {
  expect(descriptorBudget()).toBeGreaterThan(0)
})
