import { describe, expect, test } from 'vitest'
import { briefCalls } from '../../test/support/tools/brief-calls.ts'
import { pythonic } from './pythonic.ts'

const calls = (text: string) => briefCalls(pythonic, text)

describe('reads', () => {
  test.each([
    ['a list', '[f(a=1, b="x"), g()]'],
    ['space everywhere', ' [ f ( a = 1 , b = "x" ) ,\n g ( ) ] '],
    ['commas at the ends', '[f(a=1, b="x",), g(),]'],
    ['prose before', 'I call two functions:\n[f(a=1, b="x"), g()]'],
    ['prose behind', '[f(a=1, b="x"), g()]\nNow I wait.'],
    ['a code fence', '```python\n[f(a=1, b="x"), g()]\n```'],
    ['tags', '<|python_start|>[f(a=1, b="x"), g()]<|python_end|>'],
    ['two lists', '[f(a=1, b="x")]\n[g()]'],
    ['a missing bracket at the end', '[f(a=1, b="x"), g()'],
  ])('%s', (_, text) => {
    expect(calls(text)).toEqual([
      ['f', '{"a":1,"b":"x"}'],
      ['g', '{}'],
    ])
  })

  test('names with dots, dashes and other letters', () => {
    expect(calls('[fs.read-file(max-length=1, größe=2, **{"with space": 3, "x": 4}, **{})]')).toEqual([
      ['fs.read-file', '{"max-length":1,"größe":2,"with space":3,"x":4}'],
    ])
  })

  test('the same call twice', () => {
    expect(calls('[f(), f()]')).toEqual([
      ['f', '{}'],
      ['f', '{}'],
    ])
  })
})

describe('reads the literal', () => {
  test.each([
    ['True', 'true'],
    ['False', 'false'],
    ['None', 'null'],
    ['null', 'null'],
    ['-5', '-5'],
    ['+5', '5'],
    ['1_000', '1000'],
    ['.5', '0.5'],
    ['-5.', '-5.0'],
    ['1e-7', '1e-7'],
    ['0xFf', '255'],
    ['-0b11', '-3'],
    ['123456789012345678901234567890', '123456789012345678901234567890'],
    ['[]', '[]'],
    ['[1, [2, [3]], ]', '[1,[2,[3]]]'],
    ['()', '[]'],
    ['(1)', '1'],
    ['(1,)', '[1]'],
    ['(1, "a")', '[1,"a"]'],
    ['((1))', '1'],
    ['{}', '{}'],
    ['{"a": {"b": (1, 2)}, \'c\': [None]}', '{"a":{"b":[1,2]},"c":[null]}'],
    ['{1: "a", True: "b", None: "c",}', '{"1":"a","true":"b","null":"c"}'],
  ])('%s', (literal, json) => {
    expect(calls(`[f(a=${literal}), g()]`)).toEqual([
      ['f', `{"a":${json}}`],
      ['g', '{}'],
    ])
  })

  test.each([
    [String.raw`'it\'s'`, "it's"],
    [String.raw`"say \"hi\""`, 'say "hi"'],
    [`'"'`, '"'],
    [`"'"`, "'"],
    [String.raw`"\n\t\\\x41\u00e9\U0001F600\0\101"`, '\n\t\\Aé😀\0A'],
    [String.raw`"\d \N{DASH} \xZZ \U00110000"`, String.raw`\d \N{DASH} \xZZ \U00110000`],
    [String.raw`r"\d+\""`, String.raw`\d+\"`],
    ['"a\\\nb"', 'ab'],
    [`'''it's "fine"\n'''`, `it's "fine"\n`],
    [`"""a""b"""`, 'a""b'],
    ['""', ''],
    ['"two\nlines"', 'two\nlines'],
    [`"f(x), g(y)]"`, 'f(x), g(y)]'],
  ])('%s', (literal, value) => {
    const [call] = pythonic.parse(`[f(a=${literal}), g()]`, 'c')
    expect(JSON.parse(call?.function.arguments ?? '')).toEqual({ a: value })
  })
})

describe('does not read as a call', () => {
  test.each([
    'The answer is 4.',
    'See [f(a=1)] in the text.',
    '[1, 2, 3]',
    '[link(text)](https://example.org)',
    '[x for x in range(3)]',
    'f(a=1)',
    '["f(a=1)"]',
    '[]',
  ])('%s', (text) => {
    expect(calls(text)).toEqual([])
  })
})

describe('from a broken call', () => {
  test.each([
    [
      '[f(a=oops), g(b=1)]',
      [
        ['f', 'a=oops'],
        ['g', '{"b":1}'],
      ],
    ],
    [
      '[f("x"), g()]',
      [
        ['f', '"x"'],
        ['g', '{}'],
      ],
    ],
    ['[f({"a": 1})]', [['f', '{"a": 1}']]],
    [
      '[f(a=g(1, ")"), b=2), h()]',
      [
        ['f', 'a=g(1, ")"), b=2'],
        ['h', '{}'],
      ],
    ],
    ['[f(a={1, 2})]', [['f', 'a={1, 2}']]],
    ['[f(a=007)]', [['f', 'a=007']]],
    ['[f(a=1', [['f', 'a=1']]],
    ['[f(a="cut off', [['f', 'a="cut off']]],
    ["[f(a='''cut off)]", [['f', "a='''cut off"]]],
    ['[f(', [['f', '']]],
    ['[f(a=1, b', [['f', 'a=1, b']]],
  ])('%s: the readable part', (text, expected) => {
    expect(calls(text)).toEqual(expected)
  })

  test.each(['[f(a="cut off)]', "[f(a='''cut off)]", '[f(a=1', '[f(a=oops', '[f(a=[1, 2'])(
    '%s does not include the next call',
    (broken) => {
      const found = calls(`${broken}\n[next(q="x")]`)
      expect(found).toHaveLength(2)
      expect(found[0]?.[0]).toBe('f')
      expect(found[1]).toEqual(['next', '{"q":"x"}'])
    },
  )
})

test('a call quoted in an argument is not read as a call', () => {
  expect(calls(`[f(a="[no()]", b='''\n[no(a=1)]\n</think>\n'''), g()]`)).toEqual([
    ['f', JSON.stringify({ a: '[no()]', b: '\n[no(a=1)]\n</think>\n' })],
    ['g', '{}'],
  ])
})

test('writes returned and failed results', () => {
  const [call] = pythonic.parse('[f()]', 'c')
  if (!call) throw new Error('no call')
  expect(pythonic.result(call, 'text', false)).toBe('f returned:\ntext')
  expect(pythonic.result(call, 'Error: no', true)).toBe('f failed:\nError: no')
})
