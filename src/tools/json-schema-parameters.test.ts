import { describe, expect, test } from 'vitest'
import { jsonSchemaOf, type JsonSchema } from './json-schema.ts'
import { jsonSchemaParameters } from './json-schema-parameters.ts'
import { validate } from '../schema/index.ts'

const schema = {
  $schema: 'http://json-schema.org/draft-07/schema#',
  type: 'object',
  properties: {
    city: { type: 'string' },
    days: { type: 'integer', minimum: 1 },
    unit: { enum: ['celsius', 'kelvin'] },
    near: { anyOf: [{ type: 'string' }, { type: 'number' }] },
    area: { anyOf: [{ $ref: '#/definitions/box' }, { type: 'null' }] },
    tags: { type: 'array', items: { type: ['string', 'null'] } },
  },
  required: ['city'],
  additionalProperties: false,
  definitions: { box: { type: 'object', properties: { north: { type: 'number' } }, required: ['north'] } },
}

const problemOf = (args: unknown, parameters: JsonSchema = schema): string | undefined => {
  const validated = validate(jsonSchemaParameters(parameters), args)
  if (validated instanceof Promise) throw new Error('expected an answer at once')
  return validated.problem
}

test('valid arguments pass unchanged, and no defaults are added', () => {
  const args = { city: 'Oslo', unit: 'kelvin', near: 3, area: { north: 1 }, tags: ['a', null] }
  expect(validate(jsonSchemaParameters(schema), args)).toEqual({ value: args })
  expect(validate(jsonSchemaParameters(schema), { city: 'Oslo', area: null })).toEqual({
    value: { city: 'Oslo', area: null },
  })
})

describe('invalid arguments are explained in words that a model can act on', () => {
  test.each<[unknown, string]>([
    [{}, 'city: is missing'],
    [{ city: 1 }, 'city: expected string, got number'],
    [{ city: null }, 'city: expected string, got null'],
    [{ city: 'a', days: 0 }, 'days: must be >= 1'],
    [{ city: 'a', unit: 'f' }, 'unit: expected "celsius" | "kelvin"'],
    [{ city: 'a', near: [] }, 'near: expected string | number'],
    [{ city: 'a', area: { north: 'x' } }, 'area.north: expected number, got string'],
    [{ city: 'a', area: 3 }, 'area: expected value | null'],
    [{ city: 'a', tags: [1] }, 'tags[0]: expected string or null, got number'],
    [{ city: 'a', dais: 1 }, 'unknown "dais"; did you mean "days"?'],
    [[], 'expected an object'],
    ['text', 'expected an object'],
  ])('%j', (args, problem) => {
    expect(problemOf(args)).toBe(problem)
  })

  test('several problems are reported at once, up to a limit', () => {
    const many = Object.fromEntries(Array.from({ length: 20 }, (_, index) => [`zzz${index}`, 1]))
    expect(problemOf({ city: 'a', ...many })?.split('; ')).toHaveLength(8)
  })
})

test('the model sees the schema of the server', () => {
  expect(jsonSchemaOf(jsonSchemaParameters(schema))).toMatchObject({ type: 'object', properties: schema.properties })
  expect(jsonSchemaParameters({ properties: {} }).jsonSchema).toEqual({ type: 'object', properties: {} })
})

test('the newest dialect is supported, and so are two schemas with one id', () => {
  const newest = {
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    $id: 'x',
    type: 'object',
    properties: { pair: { prefixItems: [{ type: 'string' }] } },
  }
  expect(problemOf({ pair: [1] }, newest)).toBe('pair[0]: expected string, got number')
  expect(problemOf({ pair: ['a'] }, { ...newest })).toBeUndefined()
})

test.each<[string, Record<string, unknown>]>([
  ['a reference to nowhere', { type: 'object', properties: { a: { $ref: '#/nowhere' } } }],
  ['a pattern that is none', { type: 'object', properties: { a: { type: 'string', pattern: '(' } } }],
  ['a type that does not exist', { type: 'object', properties: { a: { type: 'text' } } }],
  ['a field of the wrong kind', { type: 'object', properties: 3 }],
])('%s: any object is accepted', (_what, odd) => {
  const parameters = jsonSchemaParameters(odd)
  expect(validate(parameters, { a: 'x' })).toEqual({ value: { a: 'x' } })
  expect(validate(parameters, { b: 1 })).toEqual({ value: { b: 1 } })
  expect(validate(parameters, 3)).toMatchObject({ problem: 'expected an object' })
})

test.each([
  ['^([a-z0-9]+)*$', `${'a'.repeat(60)}!`],
  ['^.*,.*,.*,.*=$', ','.repeat(2_000)],
  [`^${'(a|a)?'.repeat(40)}b$`, 'a'.repeat(40)],
])('an endless check is left to the server: %s', (pattern, endless) => {
  const patterned = { type: 'object', properties: { id: { type: 'string', pattern }, code: { pattern: '^[A-Z]{3}$' } } }
  // A busy machine may hold up any single check for so long that it is stopped, too.
  const answers = Array.from({ length: 20 }, () => problemOf({ code: 'osl' }, { ...patterned }))
  expect(answers).toContain('code: must match pattern "^[A-Z]{3}$"')
  // More often than it is tried.
  for (let call = 0; call < 5; call += 1) expect(problemOf({ id: endless }, patterned)).toBeUndefined()
})

test('a parameter named pattern does not limit the time of a check', () => {
  const named = { type: 'object', properties: { pattern: { type: 'string' }, text: { type: 'string' } } }
  const slow = {
    get pattern(): number {
      const until = performance.now() + 150
      while (performance.now() < until);
      return 5
    },
  }
  expect(problemOf(slow, named)).toBe('pattern: expected string, got number')
})
