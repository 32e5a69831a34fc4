import { z } from 'zod'
import { MillraceError } from '../errors/index.ts'
import { isJsonObject, type StandardSchema } from '../schema/index.ts'

export type JsonSchema = Readonly<Record<string, unknown>>

const cache = new WeakMap<StandardSchema, JsonSchema>()

/**
 * The JSON Schema of a schema's input. Supported are zod 4 of any version, every library with Standard JSON Schema
 * (`~standard.jsonSchema.input`), a `toJSONSchema()` or `toJsonSchema()` of the schema's own, and a hand-made schema that carries
 * its JSON Schema as `jsonSchema`. Computed once per schema; the same object each time.
 */
export function jsonSchemaOf(schema: StandardSchema): JsonSchema {
  const known = cache.get(schema)
  if (known) return known
  let made: unknown
  try {
    made = make(schema)
  } catch (error) {
    throw new MillraceError(
      'env_invalid',
      `no JSON Schema for this schema: ${MillraceError.from(error, 'internal').rawMessage}`,
      {
        cause: error,
      },
    )
  }
  if (!isJsonObject(made)) {
    throw new MillraceError(
      'env_invalid',
      `no JSON Schema for a schema of "${schema['~standard'].vendor}": use zod 4 or a library with Standard JSON Schema, ` +
        'or give the schema object a `jsonSchema` property',
    )
  }
  const { $schema: _dialect, ...plain } = made
  cache.set(schema, plain)
  return plain
}

/**
 * The library that made a schema is asked first: a schema of the user's copy of zod, put through ours, can come out
 * different (from 4.2.1, a string without its type).
 */
function make(schema: StandardSchema): unknown {
  const standard: object = schema['~standard']
  const converter = 'jsonSchema' in standard ? standard.jsonSchema : undefined
  if (converter instanceof Object && 'input' in converter && typeof converter.input === 'function') {
    return converter.input({ target: 'draft-2020-12' })
  }
  if (schema instanceof z.core.$ZodType) return z.toJSONSchema(schema, { io: 'input', override: addOwnMetadata })
  const carrier: object = schema
  if ('toJSONSchema' in carrier && typeof carrier.toJSONSchema === 'function') return carrier.toJSONSchema()
  if ('toJsonSchema' in carrier && typeof carrier.toJsonSchema === 'function') return carrier.toJsonSchema()
  return 'jsonSchema' in carrier ? carrier.jsonSchema : undefined
}

/** Before 4.1 zod keeps what `.describe()` and `.meta()` said in a registry per copy of zod, which only the schema can read. */
function addOwnMetadata({ zodSchema, jsonSchema }: { zodSchema: object; jsonSchema: object }): void {
  if (!('meta' in zodSchema) || typeof zodSchema.meta !== 'function') return
  const metadata: unknown = zodSchema.meta()
  if (!isJsonObject(metadata)) return
  // zod's own key, not a keyword of JSON Schema.
  const { id: _id, ...keywords } = metadata
  Object.assign(jsonSchema, keywords)
}
