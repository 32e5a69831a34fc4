import { describe, expect, test } from 'vitest'
import { z } from 'zod'
import type { StandardSchema } from '../schema/index.ts'
import { jsonSchemaOf } from './json-schema.ts'

function handMade(more: object): StandardSchema {
  return { '~standard': { version: 1, vendor: 'mine', validate: (value: unknown) => ({ value }) }, ...more }
}

describe('jsonSchemaOf', () => {
  test('describes what a zod schema takes in, without its dialect', () => {
    const schema = z.object({ count: z.number().default(1), unit: z.string().transform(Number) })
    expect(jsonSchemaOf(schema)).toEqual({
      type: 'object',
      properties: { count: { type: 'number', default: 1 }, unit: { type: 'string' } },
      required: ['unit'],
    })
  })

  test('is the same object each time', () => {
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
  ])('takes what %s gives', (_name, more) => {
    expect(jsonSchemaOf(handMade(more))).toEqual({ type: 'object' })
  })

  test('says what to do when there is none', () => {
    expect(() => jsonSchemaOf(handMade({}))).toThrow(
      /^\[env_invalid\] no JSON Schema for a schema of "mine": use zod 4/,
    )
  })

  test('says what cannot be expressed', () => {
    expect(() => jsonSchemaOf(z.object({ at: z.date() }))).toThrow(/Date cannot be represented/)
  })
})
