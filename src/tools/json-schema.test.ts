import { createRequire } from 'node:module'
import { describe, expect, test } from 'vitest'
import { z } from 'zod'
import type { StandardSchema } from '../schema/index.ts'
import { jsonSchemaOf } from './json-schema.ts'

function handMade(more: object): StandardSchema {
  return { '~standard': { version: 1, vendor: 'mine', validate: (value: unknown) => ({ value }) }, ...more }
}

describe('jsonSchemaOf', () => {
  test('describes the input of a zod schema, without its dialect', () => {
    const schema = z.object({ count: z.number().default(1), unit: z.string().transform(Number) })
    expect(jsonSchemaOf(schema)).toEqual({
      type: 'object',
      properties: { count: { type: 'number', default: 1 }, unit: { type: 'string' } },
      required: ['unit'],
    })
  })

  // a development dependency brings a zod of its own: 3.25, whose `zod/v4` is 4.0
  test('keeps the metadata of a schema from another copy of zod', () => {
    const require = createRequire(import.meta.url)
    const other: typeof z = createRequire(require.resolve('@portkey-ai/gateway/package.json'))('zod/v4')
    expect(other.core.version).not.toEqual(z.core.version)
    const schema = other
      .object({
        query: other.string().describe('what to look for').optional(),
        unit: other.string().meta({ title: 'Unit', examples: ['km'] }),
        place: other.object({ x: other.number() }).meta({ id: 'Place', description: 'where' }),
      })
      .describe('a search')
    expect(jsonSchemaOf(schema)).toEqual({
      type: 'object',
      description: 'a search',
      properties: {
        query: { type: 'string', description: 'what to look for' },
        unit: { type: 'string', title: 'Unit', examples: ['km'] },
        place: { type: 'object', description: 'where', properties: { x: { type: 'number' } }, required: ['x'] },
      },
      required: ['unit', 'place'],
    })
  })

  // stands in for zod 4.2.1, which no dependency brings: its strings lose their type in our converter
  test('uses the conversion of the zod schema itself, if it has one', () => {
    const schema = z.string()
    const standard = { ...schema['~standard'], jsonSchema: { input: () => ({ type: 'string', title: 'its own' }) } }
    Object.defineProperty(schema, '~standard', { value: standard })
    expect(jsonSchemaOf(schema)).toEqual({ type: 'string', title: 'its own' })
  })

  test('returns the same object each time', () => {
    const schema = z.object({})
    expect(jsonSchemaOf(schema)).toBe(jsonSchemaOf(schema))
  })

  test('asks Standard JSON Schema for the input side', () => {
    const input = ({ target }: { target: string }) => ({ $schema: target, type: 'object' })
    const standard = {
      version: 1 as const,
      vendor: 'other',
      validate: (value: unknown) => ({ value }),
      jsonSchema: { input },
    }
    const schema: StandardSchema = { '~standard': standard }
    expect(jsonSchemaOf(schema)).toEqual({ type: 'object' })
  })

  test.each([
    ['toJSONSchema', { toJSONSchema: () => ({ type: 'object' }) }],
    ['toJsonSchema', { toJsonSchema: () => ({ type: 'object' }) }],
    ['jsonSchema', { jsonSchema: { type: 'object' } }],
  ])('accepts a schema with %s', (_name, more) => {
    expect(jsonSchemaOf(handMade(more))).toEqual({ type: 'object' })
  })

  test('explains what to do if there is no JSON Schema', () => {
    expect(() => jsonSchemaOf(handMade({}))).toThrow(
      /^\[env_invalid\] no JSON Schema for a schema of "mine": use zod 4/,
    )
  })

  test('names the part that cannot be expressed', () => {
    expect(() => jsonSchemaOf(z.object({ at: z.date() }))).toThrow(/Date cannot be represented/)
  })
})
