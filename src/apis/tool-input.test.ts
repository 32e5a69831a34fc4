import { expect, test } from 'vitest'
import type { JsonObject } from '../schema/index.ts'
import {
  argumentsKey,
  changedInput,
  changesOf,
  sameArguments,
  toolInput,
  toolInputText,
  writtenArguments,
} from './tool-input.ts'

test.for([
  ['{"a": 1}', { a: 1 }],
  ['', {}],
  ['{"a": [1,', { INVALID_JSON: '{"a": [1,' }],
  ['[1]', { INVALID_JSON: '[1]' }],
  ['null', { INVALID_JSON: 'null' }],
  [' ', { INVALID_JSON: ' ' }],
] as const)('arguments %j become the input %j', ([written, input]) => {
  expect(toolInput(written)).toEqual(input)
})

test('numbers outside the range of a double stay exact on the way to the client and back', () => {
  const written = '{"id":9007199254740993,"list":[-12345678901234567890,1e400],"zero":-0}'
  expect(JSON.stringify(toolInput(written))).toBe(written)
  expect(writtenArguments(toolInput(written))).toBe(written)
  // A client that has only doubles means the same call.
  expect(argumentsKey('{"id":9007199254740992}')).toBe(argumentsKey('{"id":9007199254740993}'))
})

test('arguments that are not an object come back as the model wrote them', () => {
  for (const written of ['{"a": [1,', '[1]', 'rm -rf', ' ']) expect(writtenArguments(toolInput(written))).toBe(written)
})

test('invalid JSON in the wrapper of Claude Code is unwrapped, unless it was cut off', () => {
  const wrapped = (raw: string, len: number) => writtenArguments({ __unparsedToolInput: { raw, len } })
  expect(wrapped('{"a": "é', 8)).toBe('{"a": "é')
  expect(wrapped('{"a": "', 100)).toBe('{"__unparsedToolInput":{"raw":"{\\"a\\": \\"","len":100}}')
})

test('the text form equals the text of the model, unless that is not an object', () => {
  for (const written of ['', '{"a": 1.0}', '{"id":9007199254740993}', '{"INVALID_JSON": "a"}']) {
    expect(toolInputText(written)).toBe(written)
  }
  for (const written of ['{"a": [1,', '[1]', ' ']) {
    expect(toolInputText(written)).toBe(JSON.stringify({ INVALID_JSON: written }))
  }
})

test('arguments with the same meaning have the same key, on the way to a client and back', () => {
  for (const written of ['{"a": 1.0}', '', '{"b":1,\n"a":[]}', 'no json', '{"__proto__":1}', '{"a":1,"a":2}']) {
    expect(argumentsKey(writtenArguments(toolInput(written)))).toBe(argumentsKey(written))
  }
  expect(argumentsKey('{"a": 1.0}')).toBe(argumentsKey('{"a":1}'))
  expect(argumentsKey('{"a":1}')).not.toBe(argumentsKey('{"a":2}'))
})

test('very deeply nested arguments are invalid and cause no stack overflow', () => {
  const written = `{"a":${'['.repeat(100_000)}${']'.repeat(100_000)}}`
  expect(toolInput(written)).toEqual({ INVALID_JSON: written })
  expect(toolInput(`{"a":${'['.repeat(5000)}${']'.repeat(5000)}}`)).toHaveProperty('INVALID_JSON')
})

test.for([
  ['spaces and line ends', '{"a": [1, 2]}', '{\n "a":[1,2]\n}', true],
  ['escapes', '{"a":"\\u00e9/"}', '{"a":"é\\/"}', true],
  ['the order of keys', '{"a":1,"b":{"c":2,"d":3}}', '{"b":{"d":3,"c":2},"a":1}', true],
  ['repeated keys, of which the last counts', '{"a":1,"a":2}', '{"a":2}', true],
  ['no arguments at all', '', '{}', true],
  ['an integer of any size', '{"id": 9007199254740993}', '{"id":9007199254740993}', true],
  ['an integer that the client rounded to a double', '{"id": 9007199254740993}', '{"id":9007199254740992}', true],
  ['another integer that a double holds as the same', '{"id": 9007199254740992}', '{"id":9007199254740993}', false],
  ['zeros and exponents', '{"a":1.50,"b":1e16}', '{"b":1e+16,"a":15e-1}', true],
  ['an exponent that a double writes out', '{"a":1e16}', '{"a":10000000000000000}', true],
  ['zero, however small it is written', '{"a":-0.0e5}', '{"a":0}', true],
  ['a decimal that the client rounded to a double', '{"a":0.12345678901234567891}', '{"a":0.12345678901234568}', true],
  [
    'an integer as it is beside a rounded decimal',
    '{"a":0.12345678901234567891,"id":9007199254740993}',
    '{"id":9007199254740993,"a":0.12345678901234568}',
    true,
  ],
  ['what is too large for a double, and null', '{"a":1e400}', '{"a":null}', false],
  ['a field that the client added', '{"id":9007199254740993}', '{"all":false,"id":9007199254740993}', false],
  ['what is no JSON, in the form for clients that need an object', '{"a', '{"INVALID_JSON":"{\\"a"}', false],
] as const)('the sent arguments are compared with the recorded ones: %s', ([, recorded, sent, isSame]) => {
  expect(sameArguments(recorded, sent)).toBe(isSame)
})

test('a known change by the client is accepted, but other numbers beside it are not', () => {
  const changes = [(input: JsonObject) => ({ all: false, ...input })]
  const recorded = '{"id": 9007199254740993}'
  expect(sameArguments(recorded, '{"id":9007199254740993,"all":false}', changes)).toBe(true)
  expect(sameArguments(recorded, '{"id":9007199254740994,"all":false}', changes)).toBe(false)
  expect(sameArguments(recorded, '{"id":9007199254740993,"any":false}', changes)).toBe(false)
})

const called = (name: string, input: JsonObject) => ({ name, arguments: JSON.stringify(input) })

/** All that may become of a single call. */
function becoming(name: string, input: JsonObject): JsonObject[] {
  return changesOf([called(name, input)]).map((change) => changedInput(name, input, change))
}

const edit = { file_path: 'a.ts', old_string: 'x \n', new_string: 'y' }

test.for<[string, string, JsonObject, JsonObject]>([
  ['a default that is filled in', 'Edit', edit, { ...edit, replace_all: false }],
  ['a default that was said', 'Edit', { ...edit, replace_all: true }, { ...edit, replace_all: true }],
  [
    'spaces at the ends of lines that replace others',
    'Edit',
    { ...edit, new_string: 'y  \r\n\tz\t\n ' },
    { ...edit, new_string: 'y\r\n\tz\n', replace_all: false },
  ],
  [
    'spaces that stay, because there is no such file',
    'Edit',
    { ...edit, new_string: 'y ' },
    { ...edit, new_string: 'y ', replace_all: false },
  ],
  [
    'spaces at the ends of lines of a file',
    'Write',
    { file_path: 'a.ts', content: 'a  \n  b ' },
    { file_path: 'a.ts', content: 'a\n  b' },
  ],
  ['the folder that the agent is in', 'Bash', { command: 'cd /work && make' }, { command: 'make' }],
  ['another folder', 'Bash', { command: 'cd /work && make' }, { command: 'cd /work && make' }],
  ['a doubled backslash', 'Bash', { command: 'ls {} \\\\; -a' }, { command: 'ls {} \\; -a' }],
])('Claude Code sends back a changed input: %s', ([, name, input, expected]) => {
  expect(becoming(name, input)).toContainEqual(expected)
})

test.for<[string, string, JsonObject]>([
  ['spaces at the ends of lines in Markdown', 'Write', { file_path: 'a.MD', content: 'a  \n' }],
  ['spaces elsewhere', 'Bash', { command: 'make  \n', description: 'a ' }],
  ['a folder behind another command', 'Bash', { command: 'ls; cd /work && make' }],
  ['a field that is false or null', 'Bash', { command: 'make', run_in_background: false, timeout: null }],
])('Claude Code keeps the input: %s', ([, name, input]) => {
  for (const changed of becoming(name, input)) expect(changed).toEqual(input)
})

test('calls of other tools are not changed', () => {
  const input = { command: 'cd /work && make', content: 'a ', file_path: 'a.ts', new_string: 'b ' }
  expect(becoming('bash', input)).toEqual([])
  const [change] = changesOf([called('Bash', input)])
  expect(change && changedInput('bash', input, change)).toEqual(input)
})

test('one folder is removed from the commands of a reply, and at most four are tried', () => {
  const calls = ['/a', '/b', '/a'].map((folder) => called('Bash', { command: `cd ${folder} && make` }))
  const folders = (of: typeof calls) => new Set(changesOf(of).map(({ folder }) => folder))
  expect(folders(calls)).toEqual(new Set([undefined, '/a', '/b']))
  const many = Array.from({ length: 20 }, (_, index) => called('Bash', { command: `cd /${index} && make` }))
  expect(folders(many).size).toBe(5)
})

test('a long run of spaces is scanned once', () => {
  const content = `${' '.repeat(1_000_000)}x`
  expect(becoming('Write', { file_path: 'a', content })).toContainEqual({ file_path: 'a', content })
})
