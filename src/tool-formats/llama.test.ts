import { describe, expect, test } from 'vitest'
import { briefCalls } from '../../test/support/tools/brief-calls.ts'
import { llama } from './llama.ts'

const calls = (text: string) => briefCalls(llama, text)

describe('reads', () => {
  test.each([
    ['a bare object', '{"name": "f", "parameters": {"a": 1}}'],
    ['one with space around it', '\n\n  {"name": "f", "parameters": {"a": 1}}\n'],
    ['arguments instead of parameters', '{"name": "f", "arguments": {"a": 1}}'],
    ['a type', '{"type": "function", "name": "f", "parameters": {"a": 1}}'],
    ['a list', '[{"name": "f", "parameters": {"a": 1}}]'],
    ['the tag', '<|python_tag|>{"name": "f", "parameters": {"a": 1}}<|eom_id|>'],
    ['the tag after prose', 'I will call it.\n<|python_tag|> {"name": "f", "parameters": {"a": 1}}'],
    ['a code fence', '```json\n{"name": "f", "parameters": {"a": 1}}\n```'],
    ['a code fence after prose', 'The call:\n\n```\n{"name": "f", "parameters": {"a": 1}}\n```\nThat is all.'],
    ['a function tag', 'So: <function=f>{"a": 1}</function>'],
    ['a function tag with space', '<function= f >\n{"a": 1}\n</function>'],
    ['a function tag that is not closed', '<function=f>{"a": 1}<|eom_id|>'],
  ])('%s', (_, text) => {
    expect(calls(text)).toEqual([['f', '{"a": 1}']])
  })

  test.each([
    ['; between', '{"name": "f", "parameters": {}}; {"name": "g", "parameters": {"b": ";"}}'],
    ['line breaks between', '<|python_tag|>{"name": "f", "parameters": {}}\n{"name": "g", "parameters": {"b": ";"}}'],
    ['a bracket too many', '{"name": "f", "parameters": {}}}; {"name": "g", "parameters": {"b": ";"}}'],
    ['a list', '[{"name": "f", "parameters": {}}, {"name": "g", "parameters": {"b": ";"}}]'],
    ['two tags', '<|python_tag|>{"name": "f", "parameters": {}}<|python_tag|>{"name": "g", "parameters": {"b": ";"}}'],
    ['two functions', '<function=f>{}</function>\n<function=g>{"b": ";"}</function>'],
    [
      'two fences',
      '```json\n{"name": "f", "parameters": {}}\n```\nand\n```json\n{"name": "g", "parameters": {"b": ";"}}\n```',
    ],
  ])('several calls with %s', (_, text) => {
    expect(calls(text)).toEqual([
      ['f', '{}'],
      ['g', '{"b": ";"}'],
    ])
  })
})

describe('does not read as a call', () => {
  test.each([
    'The answer is 4.',
    '{"answer": 4}',
    '{"name": "Ada", "born": 1815}',
    'A call looks like {"name": "f", "parameters": {}}.',
    'Prose.\n{"name": "f", "parameters": {}}',
    '```json\n{"answer": {"name": "f", "parameters": {}}}\n```',
    '```\n{"broken": \n```\n',
    '[1, 2]',
  ])('%s', (text) => {
    expect(calls(text)).toEqual([])
  })
})

describe('from a broken call', () => {
  test.each([
    ['{"name": "f", "parameters": {"a": "b', [['f', '{"a": "b']]],
    ['{"name": "f", "parameters": {"a": "b"}', [['f', '{"a": "b"}']]],
    ["{'name': 'f', 'parameters': {'a': 1}}", [['f', "{'a': 1}"]]],
    ['<|python_tag|>', [['', '']]],
    ['<|python_tag|>print(1)', [['', 'print(1)']]],
    ['<|python_tag|>{"query": "x"}', [['', '{"query": "x"}']]],
    ['<function=f>', [['f', '']]],
    ['<function=f>{"a": "b', [['f', '{"a": "b']]],
  ])('%s: the readable part', (text, expected) => {
    expect(calls(text)).toEqual(expected)
    expect(calls(`${text}\n<function=next>{"q": "x"}</function>`)).toEqual([...expected, ['next', '{"q": "x"}']])
  })

  test('a broken call does not include the next object', () => {
    expect(calls('{"name": "f", "parameters": {"a": "b}; {"name": "g", "parameters": {"c": 1}}')).toEqual([
      ['f', '{"a": "b}'],
      ['g', '{"c": 1}'],
    ])
  })
})

test('a call quoted in an argument is not read as a call', () => {
  const args = JSON.stringify({ a: '<function=no>{}</function>; {"name": "no", "parameters": {}}', b: '</think>```' })
  const expected = [
    ['f', args],
    ['g', '{}'],
  ]
  expect(calls(`{"name": "f", "parameters": ${args}}; {"name": "g", "parameters": {}}`)).toEqual(expected)
  expect(calls(`<function=f>${args}</function><function=g>{}</function>`)).toEqual(expected)
})

test('writes results as JSON', () => {
  const [call] = llama.parse('<function=f>{}</function>', 'c')
  if (!call) throw new Error('no call')
  expect(llama.result(call, 'a\nb', false)).toBe('{"name":"f","output":"a\\nb"}')
  expect(llama.result(call, 'Error: no', true)).toBe('{"name":"f","error":"Error: no"}')
})
