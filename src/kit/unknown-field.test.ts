import { expect, test } from 'vitest'
import { unknownField } from './unknown-field.ts'

const known = ['maxTurns', 'timeoutMs']

test.each([
  [{}, undefined],
  [{ maxTurns: 1 }, undefined],
  [{ maxTurns: 1, timeOutMs: 1 }, '`limits.timeOutMs` is not known; did you mean `timeoutMs`?'],
  [{ colour: 1 }, '`limits.colour` is not known; there are maxTurns, timeoutMs'],
])('%j', (fields, problem) => {
  expect(unknownField(fields, known, 'limits.')).toBe(problem)
})
