import type { Json } from '../../../src/schema/index.ts'

export type Random = () => number
type Schema = Readonly<Record<string, unknown>>

const words = ['alpha', 'Beta', '7', '007', 'true', 'null', '', '[1]', '{"a":1}', 'a, b', '1.10', 'ünï 🏰', '__proto__']
const numbers = [0, 1, -3, 2.5, 1e21, 2 ** 53 + 2, -0.001]
const names = ['a', 'b', 'Code', 'description', 'constructor', 'q']

/** Schemas like those of tools: nested, with choices, alternatives, references and everything optional or not. */
export function randomParameters(random: Random): Schema {
  const defs = { shared: randomSchema(random, 1) }
  return { ...randomObject(random, 0), $defs: defs }
}

function randomSchema(random: Random, depth: number): Schema {
  const simple: (() => Schema)[] = [
    () => ({ type: pick(random, ['string', 'integer', 'number', 'boolean', 'null']) }),
    () => ({ type: sample(random, ['string', 'integer', 'boolean', 'null', 'array']) }),
    () => ({ enum: sample<Json>(random, [...words, ...numbers, null, true]) }),
    () => ({ const: pick<Json>(random, [...words, 1, false]) }),
    () => ({ type: 'string', minLength: 1 }),
    () => ({ type: 'integer', nullable: true }),
    () => ({}),
  ]
  const nested: (() => Schema)[] = [
    () => randomObject(random, depth + 1),
    () => ({ type: 'array', items: randomSchema(random, depth + 1) }),
    () => ({ type: 'array', prefixItems: [randomSchema(random, depth + 1)] }),
    () => ({ anyOf: [randomSchema(random, depth + 1), randomSchema(random, depth + 1)] }),
    () => ({ oneOf: [randomSchema(random, depth + 1), randomSchema(random, depth + 1)] }),
    () => ({ allOf: [randomSchema(random, depth + 1)] }),
    () => ({ not: randomSchema(random, depth + 1) }),
    ...(depth === 0 ? [() => ({ $ref: '#/$defs/shared' })] : []),
  ]
  return pick(random, depth < 3 && random() < 0.6 ? nested : simple)()
}

function randomObject(random: Random, depth: number): Schema {
  const keys = sample(random, names)
  return {
    type: 'object',
    properties: Object.fromEntries(keys.map((key) => [key, randomSchema(random, depth + 1)])),
    required: keys.filter(() => random() < 0.5),
    ...(random() < 0.4 && { additionalProperties: random() < 0.7 ? false : randomSchema(random, depth + 1) }),
  }
}

/** A value that often fits: what a schema asks for is looked at, but not obeyed to the letter. */
export function randomValue(random: Random, schema: unknown, root: Schema): Json {
  if (!isSchema(schema) || random() < 0.02) return anything(random)
  if (schema['$ref'] !== undefined) return randomValue(random, isSchema(root['$defs']) && root['$defs']['shared'], root)
  if ('const' in schema) return schema['const'] as Json
  const choices = schema['enum'] ?? schema['anyOf'] ?? schema['oneOf'] ?? schema['allOf']
  if (Array.isArray(choices)) {
    const choice: unknown = pick(random, choices)
    return schema['enum'] === undefined ? randomValue(random, choice, root) : (choice as Json)
  }
  const type: unknown = Array.isArray(schema['type']) ? pick(random, schema['type']) : schema['type']
  switch (type) {
    case 'string':
      return pick(random, words)
    case 'integer':
      return pick(random, numbers.filter(Number.isInteger))
    case 'number':
      return pick(random, numbers)
    case 'boolean':
      return random() < 0.5
    case 'null':
      return null
    case 'array':
      return Array.from({ length: Math.floor(random() * 3) }, () => randomValue(random, schema['items'], root))
    case 'object':
      return randomMembers(random, schema, root)
    default:
      return anything(random)
  }
}

function randomMembers(random: Random, schema: Schema, root: Schema): Json {
  const properties = isSchema(schema['properties']) ? schema['properties'] : {}
  const required = Array.isArray(schema['required']) ? schema['required'] : []
  const kept = Object.entries(properties).filter(([key]) => required.includes(key) || random() < 0.5)
  const members = kept.map(([key, inner]): [string, Json] => [key, randomValue(random, inner, root)])
  if (schema['additionalProperties'] !== false && random() < 0.3) members.push(['extra', anything(random)])
  return Object.fromEntries(members)
}

function anything(random: Random): Json {
  return pick<Json>(random, [...words, ...numbers, null, true, [], ['x'], {}, { a: null }])
}

export function pick<Value>(random: Random, values: readonly Value[]): Value {
  const picked = values[Math.floor(random() * values.length)]
  if (picked === undefined) throw new Error('nothing to pick from')
  return picked
}

function sample<Value>(random: Random, values: readonly Value[]): Value[] {
  const kept = values.filter(() => random() < 0.4)
  return kept.length > 0 ? kept : [pick(random, values)]
}

function isSchema(value: unknown): value is Schema {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
