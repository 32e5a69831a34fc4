import { describe, expect, test } from 'vitest'
import { ownTool, ownTools } from '../../../test/support/tools/catalogues.ts'
import { written } from '../../../test/support/tools/sloppy-call.ts'
import { maxRepairedChars, readLoosely } from './loose-json.ts'
import { createRepairer } from './repairer.ts'
import { miroThinkerRepairs, standardRepairs } from './repair-rules.ts'

const repairer = createRepairer(miroThinkerRepairs, ownTools)

/** Texts of about `size` characters, on which parsers that look back or recurse come to grief. */
const texts: Readonly<Record<string, (size: number) => string>> = {
  'brackets that never close': (size) => '['.repeat(size),
  'objects that never close': (size) => '{"a":'.repeat(size / 5),
  'braces that never close, and a word': (size) => `word ${'{'.repeat(size)}`,
  'brackets that were never opened': (size) => '}'.repeat(size),
  'quotes that end nothing': (size) => `["a ${'"a '.repeat(size / 3)}]`,
  'nothing but quotes': (size) => `{"a":"${'"'.repeat(size)}`,
  'strings without an end': (size) => `{${'"a":"b,'.repeat(size / 7)}}`,
  'commas left out': (size) => `{${'"a": 1\n'.repeat(size / 7)}}`,
  'strings added up': (size) => `{"a":${'"b" + '.repeat(size / 6)}"c"}`,
  'calls in calls': (size) => 'a('.repeat(size / 2),
  'lines without quotes': (size) => `[${'a b\n'.repeat(size / 4)}`,
  'small objects side by side': (size) => `x ${'{a} '.repeat(size / 4)}`,
  backslashes: (size) => `{"a":"${'\\'.repeat(size)}`,
}

describe.each(Object.entries(texts))('%s', (_what, make) => {
  test('are refused or repaired to a small size, without a stack overflow', () => {
    for (const size of [100, 2_000, 10_000]) {
      const made = repairer.repair(written(['weather', make(size)]))
      expect(['call', 'refused']).toContain(made.kind)
      expect(JSON.stringify(made).length).toBeLessThan(4 * size + 4_000)
    }
  })

  test('over the size limit are refused with that limit', () => {
    const made = repairer.repair(written(['weather', make(maxRepairedChars + 10)]))
    expect(made).toMatchObject({ kind: 'refused', status: 'bad_arguments' })
    expect(made.kind === 'refused' && made.message).toContain(
      `more than ${maxRepairedChars} characters are not repaired`,
    )
  })
})

describe('a list in place of a key', () => {
  test.each(['{[1]}', '{"a":1,[2]}', '{"a":1 [2]}', '{"q": "x", [1]}', '{"a":,[', '{"a":;[1]}', '{e:,['])(
    'is refused: %s',
    (text) => {
      expect(repairer.repair(written(['weather', text]))).toMatchObject({ kind: 'refused', status: 'bad_arguments' })
    },
  )

  test.each([
    ['behind a quote that is missing', '{"city":"[1]}'],
    ['in code whose quotes are bare', String.raw`{"city": "for row in rows[1:]:\n  print("name", row["name"], [1])"}`],
    ['in a word that lost its own', '{"city":nu[l}'],
  ])('is refused %s', (_where, text) => {
    expect(repairer.repair(written(['weather', text]))).toMatchObject({ kind: 'refused', status: 'bad_arguments' })
  })
})

test('a text that takes the repair library too long is refused', () => {
  const text = (texts['quotes that end nothing'] ?? String)(32_000)
  expect(readLoosely(text)).toEqual({ problem: expect.stringContaining('not valid JSON') })
  expect(readLoosely('{"city": "Ghent",}')).toMatchObject({ value: { city: 'Ghent' } })
})

test('JSON with very many unclosed brackets is refused', () => {
  const open = (depth: number): string => `{"city":"Ghent","any":${'['.repeat(depth)}`
  expect(repairer.repair(written(['weather', open(100)]))).toMatchObject({ kind: 'call', repairs: [{ rule: 'json' }] })
  expect(repairer.repair(written(['weather', open(300)]))).toMatchObject({ kind: 'refused', status: 'bad_arguments' })
})

test('valid JSON of any depth and size passes', () => {
  const deep = `{"city":"Ghent","any":${'['.repeat(100_000)}${']'.repeat(100_000)}}`
  const long = `{"city":"Ghent","any":"${'x'.repeat(4 * maxRepairedChars)}"}`
  for (const text of [deep, long]) {
    expect(repairer.repair(written(['weather', text]))).toMatchObject({ kind: 'call', name: 'weather', repairs: [] })
  }
})

test('an invalid value below very deep nesting is left unchanged', () => {
  const deep = `{"city":7,"days":${'['.repeat(50_000)}"3"${']'.repeat(50_000)}}`
  const made = repairer.repair(written(['weather', deep]))
  expect(made.repairs.map(({ rule, at }) => [rule, at])).toEqual([['coerce', 'city']])
})

test('a recursive schema is followed to a limited depth', () => {
  const link = { type: 'object', properties: { n: { type: 'integer' }, next: { $ref: '#/$defs/link' } } }
  const tools = [ownTool('chain', { link: { $ref: '#/$defs/link' } }, { $defs: { link } })]
  const chain = (length: number): string => `{"link":${'{"n":"3","next":'.repeat(length)}{"n":3}${'}'.repeat(length)}}`
  const rulesFor = (length: number): readonly string[] =>
    createRepairer(standardRepairs, tools)
      .repair(written(['chain', chain(length)]))
      .repairs.map(({ rule }) => rule)
  expect(rulesFor(5)).toEqual(['coerce'])
  expect(rulesFor(20_000)).toEqual([])
})

describe('a schema that grows exponentially', () => {
  const option = (depth: number): object => ({
    type: 'object',
    properties: { a: { $ref: `#/$defs/node${depth - 1}` } },
    required: ['a'],
  })
  const node = (depth: number): object =>
    depth === 0 ? { type: 'integer' } : { anyOf: Array.from({ length: 4 }, () => option(depth)) }
  const $defs = Object.fromEntries(Array.from({ length: 8 }, (_, depth) => [`node${depth}`, node(depth)]))
  const nested = (depth: number): unknown => (depth === 0 ? 'x' : { a: nested(depth - 1) })

  test('is searched up to a limit, and other repairs still count', () => {
    const { parameters } = ownTool('tree', { root: { $ref: '#/$defs/node7' }, 'n?': { type: 'integer' } }, { $defs })
    const args = JSON.parse(JSON.stringify({ root: nested(7), n: '3' }))
    const tools = [{ name: 'tree', parameters }]
    const made = createRepairer(standardRepairs, tools).repair(written(['tree', JSON.stringify(args)]))
    expect(made).toMatchObject({ kind: 'call', arguments: { ...args, n: 3 }, repairs: [{ rule: 'coerce', at: 'n' }] })
  })

  test.each([
    ['refers to itself', { $ref: '#/properties/root' }],
    ['refers to itself in an alternative', { anyOf: [{ $ref: '#/properties/root' }, { type: 'integer' }] }],
    ['refers to nothing', { $ref: '#/$defs/none' }],
    ['refers to another document', { $ref: 'https://example.com/schema' }],
    ['refers to itself in all its parts', { allOf: [{ $ref: '#' }, { $ref: '#/properties/root' }] }],
  ])('a schema that %s leads to no repair', (_what, root) => {
    const tools = [ownTool('loop', { root })]
    const made = createRepairer(standardRepairs, tools).repair(written(['loop', '{"root":"x"}']))
    expect(made).toMatchObject({ kind: 'call', arguments: { root: 'x' }, repairs: [] })
  })
})

test('a long list is repaired fast, and a list with too many alternatives is left unchanged', () => {
  const tools = [ownTool('list', { items: { type: 'array', items: { type: 'integer' } } })]
  const items = Array.from({ length: 10_000 }, (_, index) => index)
  const made = createRepairer(standardRepairs, tools).repair(
    written(['list', JSON.stringify({ items: items.map(String) })]),
  )
  expect(made).toMatchObject({ kind: 'call', arguments: { items }, repairs: [{ rule: 'coerce', at: 'items' }] })
  const either = { anyOf: [{ type: 'integer' }, { type: 'array', items: { type: 'integer' } }] }
  const choices = [ownTool('choices', { items: { type: 'array', items: either } })]
  const text = JSON.stringify({ items: Array.from({ length: 1_000 }, () => '5') })
  expect(createRepairer(standardRepairs, choices).repair(written(['choices', text]))).toMatchObject({ repairs: [] })
})

test('JSON text that fits none of many alternatives is left unchanged', () => {
  const options = Array.from({ length: 500 }, (_, index) => ({
    type: 'object',
    properties: { kind: { const: index }, list: { type: 'array' } },
    required: ['kind', 'list'],
    additionalProperties: false,
  }))
  const tools = [ownTool('big', { value: { anyOf: options } })]
  const value = JSON.stringify({ kind: 'none', list: Array.from({ length: 40_000 }, () => 1) })
  const made = createRepairer(standardRepairs, tools).repair(written(['big', JSON.stringify({ value })]))
  expect(made).toMatchObject({ kind: 'call', arguments: { value }, repairs: [] })
})
