import { expect, test } from 'vitest'
import { TokenPrompt } from './token-prompt.ts'

const ids = (...values: number[]): Int32Array => Int32Array.from(values)
const random = (count: number, seed: number): Int32Array =>
  Int32Array.from({ length: count }, (_, i) => (i * 7919 + seed) % 150_000)

test('a prompt has its ids and their JSON', () => {
  const prompt = TokenPrompt.of(ids(1, 22), ids(), ids(333))
  expect(prompt.ids).toEqual(ids(1, 22, 333))
  expect(`[${prompt.json.toString()}]`).toBe('[1,22,333]')
  expect(TokenPrompt.of().json.toString()).toBe('')
})

test('a prompt stays as it is when it is extended, and forks do not mix', () => {
  const first = TokenPrompt.of(random(300, 1))
  const before = Array.from(first.ids)
  const one = first.extended(random(5000, 2), random(3, 3))
  const other = first.extended(random(10, 4))
  expect(Array.from(first.ids)).toEqual(before)
  expect(Array.from(one.ids)).toEqual([...before, ...random(5000, 2), ...random(3, 3)])
  expect(Array.from(other.ids)).toEqual([...before, ...random(10, 4)])
  for (const prompt of [first, one, other]) {
    expect(JSON.parse(`[${prompt.json.toString()}]`)).toEqual(Array.from(prompt.ids))
  }
})

test('a prompt recognises its own ids, in the same memory or another', () => {
  const prompt = TokenPrompt.of(ids(1, 2, 3))
  expect(prompt.hasIds(prompt.ids)).toBe(true)
  expect(prompt.hasIds(ids(1, 2, 3))).toBe(true)
  expect(prompt.hasIds(ids(1, 2))).toBe(false)
  expect(prompt.hasIds(ids(1, 2, 4))).toBe(false)
})
