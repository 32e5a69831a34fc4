import { describe, expect, test } from 'vitest'
import { briefCalls } from '../../test/support/tools/brief-calls.ts'
import { hermes } from './hermes.ts'

const calls = (text: string) => briefCalls(hermes, text)

const block = (body: string) => `<tool_call>\n${body}\n</tool_call>`

describe('reads', () => {
  test('a call, with its arguments as written', () => {
    expect(calls(`Let me see.\n${block('{"name": "f", "arguments": { "a" :1.0, "b":[ ] }}')}\nDone.`)).toEqual([
      ['f', '{ "a" :1.0, "b":[ ] }'],
    ])
  })

  test('several calls, in one block or many, with repeated calls', () => {
    const one = '{"name": "f", "arguments": {"a": 1}}'
    expect(calls(`${block(one)}${block(one)}\n${block(`${one}\n${one}`)}${block(`[${one}, ${one}]`)}`)).toEqual(
      Array.from({ length: 6 }, () => ['f', '{"a": 1}']),
    )
  })

  test.each([
    ['arguments first', '{"arguments": {"name": "inner"}, "name": "f"}', '{"name": "inner"}'],
    ['parameters', '{"name": "f", "parameters": {}}', '{}'],
    ['more than is needed', '{"id": 7, "name": "f", "arguments": {}, "type": "function"}', '{}'],
    ['the shape of the API', '{"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}', '{"a": 1}'],
    ['arguments in a string', '{"name": "f", "arguments": "{\\"a\\": 1}"}', '"{\\"a\\": 1}"'],
    ['a code fence', '```json\n{"name": "f", "arguments": {}}\n```', '{}'],
    ['no arguments', '{"name": "f"}', ''],
  ])('%s', (_, body, args) => {
    expect(calls(block(body))).toEqual([['f', args]])
  })

  test('a name with escapes in it', () => {
    expect(calls(block('{"name": "f\\u0031\\n", "arguments": {}}'))).toEqual([['f1\n', '{}']])
  })
})

describe('accepts', () => {
  test.each([
    ['a bracket too many', '{"name": "f", "arguments": {"a": "x"}}}', '{"a": "x"}'],
    ['a bracket too few', '{"name": "f", "arguments": {"a": "x"}', '{"a": "x"}'],
    ['single quotes', "{'name': 'f', 'arguments': {'a': 'it is'}}", "{'a': 'it is'}"],
    ['bare keys', '{name: "f", arguments: {a: "x"}}', '{a: "x"}'],
    ['a missing comma', '{"arguments": {"a": "x"} "name": "f"}', '{"a": "x"}'],
    ['quotes in a string', '{"name": "f", "arguments": {"a": "say "hi" now"}}', '{"a": "say "hi" now"}'],
    ['line breaks in a string', '{"name": "f", "arguments": {"a": "x\ny"}}', '{"a": "x\ny"}'],
    ['words of Python', '{"name": "f", "arguments": {"a": True, }, }', '{"a": True, }'],
    ['something behind it', '{"name": "f", "arguments": {"a": "x"}} // ok', '{"a": "x"}'],
  ])('%s', (_, body, args) => {
    expect(calls(`${block(body)}${block('{"name":"g","arguments":{}}')}`)).toEqual([
      ['f', args],
      ['g', '{}'],
    ])
  })

  test('a missing closing tag', () => {
    const open = '<tool_call>{"name": "f", "arguments": {}}'
    expect(calls(open)).toEqual([['f', '{}']])
    expect(calls(`${open}\nand then\n${open}\n`)).toEqual([
      ['f', '{}'],
      ['f', '{}'],
    ])
  })
})

describe('from a broken block', () => {
  test.each([
    ['<tool_call>', [['', '']]],
    ['<tool_call>search for cats</tool_call>', [['', 'search for cats']]],
    ['<tool_call>{"name": "f", "argum', [['f', '']]],
    ['<tool_call>{"name": "f", "arguments": {"a": "b', [['f', '{"a": "b']]],
    ['<tool_call>{"na', [['', '{"na']]],
    ['<tool_call>{"query": "cats"}</tool_call>', [['', '{"query": "cats"}']]],
    ['<tool_call>{"arguments": {"a": 1}}</tool_call>', [['', '{"a": 1}']]],
    ['<tool_call>{"name": null, "arguments": {}}</tool_call>', [['', '{}']]],
  ])('%s: the readable part', (text, expected) => {
    expect(calls(text)).toEqual(expected)
    // Nor does it swallow the next one.
    const next = block('{"name": "next", "arguments": {"q": "x"}}')
    expect(calls(`${text}\n${next}`)).toEqual([...expected, ['next', '{"q": "x"}']])
  })
})

test('any number of calls is read', () => {
  expect(hermes.parse(block('{}'.repeat(150_000)), 'c')).toHaveLength(150_000)
})

test('a call quoted in an argument is not read as a call', () => {
  const args = JSON.stringify({ text: block('{"name": "no", "arguments": {}}'), think: '<think></think>', q: '"' })
  expect(calls(`${block(`{"name": "f", "arguments": ${args}}`)}${block('{"name":"g","arguments":{}}')}`)).toEqual([
    ['f', args],
    ['g', '{}'],
  ])
})

test('writes results between tags', () => {
  const [call] = hermes.parse(block('{"name":"f","arguments":{}}'), 'c')
  if (!call) throw new Error('no call')
  expect(hermes.result(call, 'text', false)).toBe('<tool_response>\ntext\n</tool_response>')
})
