import { describe, expect, test } from 'vitest'
import { andList, nearestName, nearestNames, pathText, unknownField } from './suggest.ts'

const known = ['calculator', 'search', 'read_file', 'write_file']

describe('nearestName', () => {
  test.each([
    ['calculater', 'calculator'],
    ['Calculator', 'calculator'],
    ['calc', 'calculator'],
    ['saerch', 'search'],
    ['readfile', 'read_file'],
  ])('for %s suggests %s', (wanted, expected) => {
    expect(nearestName(wanted, known)).toBe(expected)
  })

  test.each(['', 'browse', 'x', 'e'.repeat(5_000)])('suggests nothing for %s', (wanted) => {
    expect(nearestName(wanted, known)).toBeUndefined()
  })

  test('a different single letter is not a typing mistake, except for its case', () => {
    expect(nearestNames('x', ['a', 'b', 'xy'])).toEqual([])
    expect(nearestNames('x', ['a', 'X'])).toEqual(['X'])
  })

  test('lists the closest names first, up to the given number', () => {
    expect(nearestNames('rite_file', known)).toEqual(['write_file', 'read_file'])
    expect(nearestNames('rite_file', known, 1)).toEqual(['write_file'])
  })

  test('swapped neighbouring letters count as one mistake', () => {
    expect(nearestName('abdc', ['abcd', 'abxx'])).toBe('abcd')
  })
})

const fields = ['maxTurns', 'timeoutMs']

test.each([
  [{}, undefined],
  [{ maxTurns: 1 }, undefined],
  [{ maxTurns: 1, timeOutMs: 1 }, '`limits.timeOutMs` is not known; did you mean `timeoutMs`?'],
  [{ colour: 1 }, '`limits.colour` is not known; there are maxTurns, timeoutMs'],
])('%j', (given, problem) => {
  expect(unknownField(given, fields, 'limits.')).toBe(problem)
})

test.each([
  ['', []],
  ['GET', ['GET']],
  ['GET and POST', ['GET', 'POST']],
  ['DELETE, GET and POST', ['DELETE', 'GET', 'POST']],
])('%s', (sentence, names) => {
  expect(andList(names)).toBe(sentence)
})

test.each([
  [[], ''],
  [['a', 'b'], 'a.b'],
  [[0, 'a', '1', 2], '[0].a[1][2]'],
])('%j is %s', (path, text) => {
  expect(pathText(path)).toBe(text)
})
