import { expect, test } from 'vitest'
import { descriptorBudget } from './descriptor-budget.ts'

test('the budget is half of the descriptors left above the reserve', () => {
  expect(descriptorBudget({ softLimit: 1024 })).toBe(480)
  expect(descriptorBudget({ softLimit: 256 })).toBe(96)
  expect(descriptorBudget({ softLimit: 10 })).toBe(1)
})

test('the workers of a process share the budget, and each gets at least one descriptor', () => {
  expect(descriptorBudget({ softLimit: 1024, workers: 4 })).toBe(120)
  expect(descriptorBudget({ softLimit: 256, workers: 1000 })).toBe(1)
})

test('clients of a server take from the budget what they need, down to a fifth of all', () => {
  expect(descriptorBudget({ softLimit: 1400, clients: 600 })).toBe(668)
  expect(descriptorBudget({ softLimit: 1400, clients: 1000 })).toBe(336)
  expect(descriptorBudget({ softLimit: 1400, clients: 5000 })).toBe(267)
  expect(descriptorBudget({ softLimit: 1400, clients: 1000, workers: 2 })).toBe(168)
})

test('the budget of this machine is greater than zero', () => {
  expect(descriptorBudget()).toBeGreaterThan(0)
})
