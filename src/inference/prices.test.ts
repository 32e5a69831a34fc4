import { expect, test } from 'vitest'
import { costOf, priceOf } from './prices.ts'

test('the longest name wins, and a different model is not mistaken for it', () => {
  expect(priceOf('gpt-4o')).toEqual(priceOf('gpt-4o-2024-08-06'))
  expect(priceOf('gpt-4o-mini')).not.toEqual(priceOf('gpt-4o'))
  expect(priceOf('openai/gpt-4o-mini')).toEqual(priceOf('gpt-4o-mini-2024-07-18'))
  expect(priceOf('claude-sonnet-4-20250514')).toEqual(priceOf('claude-sonnet-4'))
  expect(priceOf('claude-opus-5-5')).not.toEqual(priceOf('claude-opus-5'))
  expect(priceOf('gpt-5-pro')).toBeUndefined()
  expect(priceOf('claude-opus-4-99')).toBeUndefined()
  expect(priceOf('my-own-model')).toBeUndefined()
  expect(priceOf('sim')).toMatchObject({ input: 0, output: 0 })
})

test('cached tokens cost their own price, or that of others', () => {
  const usage = { calls: 1, input: 1_000_000, cachedInput: 400_000, output: 100_000, reasoning: 50_000 }
  expect(costOf(usage, { input: 2, cachedInput: 0.5, output: 8 })).toBeCloseTo(1.2 + 0.2 + 0.8)
  expect(costOf(usage, { input: 2, output: 8 })).toBeCloseTo(2.8)
  expect(costOf(usage, undefined)).toBeNull()
})
