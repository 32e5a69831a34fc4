import { expect, test } from 'vitest'
import { NameCheck } from './name-check.ts'
import type { ToolCatalogue } from '../catalogue/tool-catalogue.ts'

const listOf = (server: string, ...unlisted: string[]): ToolCatalogue => ({
  server,
  tools: [],
  digest: 'd',
  ...(unlisted.length > 0 && { unlisted: unlisted.map((name) => ({ option: 'deny', name })) }),
})

test('names that do not fit the first list are refused each time; a few are shown', () => {
  const names = new NameCheck()
  for (let time = 0; time < 2; time += 1) expect(() => names.check(listOf('one', 'a'))).toThrow('"deny" names "a"')
  expect(() => names.check(listOf('one', 'a', 'b', 'c', 'd', 'e', 'f', 'g'))).toThrow(/names "e".*list; and 2 more \(/)
})

test('after a list that fitted, those that do not are named once for each list', () => {
  const names = new NameCheck()
  expect(names.check(listOf('one'))).toEqual([])
  expect(names.check(listOf('one', 'a'))).toEqual(['a'])
  expect(names.check(listOf('one', 'a'))).toEqual([])
  expect(names.check(listOf('one', 'a', 'b'))).toEqual(['a', 'b'])
  expect(names.check(listOf('one'))).toEqual([])
  expect(names.check(listOf('one', 'a'))).toEqual(['a'])
  // Another server is another matter.
  expect(() => names.check(listOf('two', 'a'))).toThrow('"two"')
})
