import { expect, test } from 'vitest'
import { andList } from './and-list.ts'

test.each([
  ['', []],
  ['GET', ['GET']],
  ['GET and POST', ['GET', 'POST']],
  ['DELETE, GET and POST', ['DELETE', 'GET', 'POST']],
])('%s', (sentence, names) => {
  expect(andList(names)).toBe(sentence)
})
