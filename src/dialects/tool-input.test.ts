import { expect, test } from 'vitest'
import { argumentsKey, toolInput, toolInputText, writtenArguments } from './tool-input.ts'

test.for([
  ['{"a": 1}', { a: 1 }],
  ['', {}],
  ['{"a": [1,', { INVALID_JSON: '{"a": [1,' }],
  ['[1]', { INVALID_JSON: '[1]' }],
  ['null', { INVALID_JSON: 'null' }],
  [' ', { INVALID_JSON: ' ' }],
] as const)('arguments %j are the input %j', ([written, input]) => {
  expect(toolInput(written)).toEqual(input)
})

test('numbers that no double can hold reach the client and come back as the model wrote them', () => {
  const written = '{"id":9007199254740993,"list":[-12345678901234567890,1e400],"zero":-0}'
  expect(JSON.stringify(toolInput(written))).toBe(written)
  expect(writtenArguments(toolInput(written))).toBe(written)
  // A client that has only doubles means the same call.
  expect(argumentsKey('{"id":9007199254740992}')).toBe(argumentsKey('{"id":9007199254740993}'))
})

test('arguments that are no object come back as the model wrote them', () => {
  for (const written of ['{"a": [1,', '[1]', 'rm -rf', ' ']) expect(writtenArguments(toolInput(written))).toBe(written)
})

test('as text they are what the model wrote, unless that is no object', () => {
  for (const written of ['', '{"a": 1.0}', '{"id":9007199254740993}', '{"INVALID_JSON": "a"}']) {
    expect(toolInputText(written)).toBe(written)
  }
  for (const written of ['{"a": [1,', '[1]', ' ']) {
    expect(toolInputText(written)).toBe(JSON.stringify({ INVALID_JSON: written }))
  }
})

test('arguments that mean the same have the same key, on the way to a client and back', () => {
  for (const written of ['{"a": 1.0}', '', '{"b":1,\n"a":[]}', 'no json', '{"__proto__":1}', '{"a":1,"a":2}']) {
    expect(argumentsKey(writtenArguments(toolInput(written)))).toBe(argumentsKey(written))
  }
  expect(argumentsKey('{"a": 1.0}')).toBe(argumentsKey('{"a":1}'))
  expect(argumentsKey('{"a":1}')).not.toBe(argumentsKey('{"a":2}'))
})

test('arguments nested without end are not valid, and overflow nothing', () => {
  const written = `{"a":${'['.repeat(100_000)}${']'.repeat(100_000)}}`
  expect(toolInput(written)).toEqual({ INVALID_JSON: written })
  expect(toolInput(`{"a":${'['.repeat(5000)}${']'.repeat(5000)}}`)).toHaveProperty('INVALID_JSON')
})
