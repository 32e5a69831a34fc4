import { expect, test } from 'vitest'
import { pathText } from './path-text.ts'

test.each([
  [[], ''],
  [['a', 'b'], 'a.b'],
  [[0, 'a', '1', 2], '[0].a[1][2]'],
])('%j is %s', (path, text) => {
  expect(pathText(path)).toBe(text)
})
