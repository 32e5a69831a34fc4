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

/** The library that made a schema is asked first: through our copy of zod a schema of another copy can come out different. */
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

/** A signature only reminds the model, which was given the schema itself already. */
const maxSignatureChars = 1_000
const maxDepth = 3
const maxChoices = 12

/** What a tool expects, short enough for an error message: `{"city": string, "unit"?: "celsius" | "kelvin"}`. */
export function describeParameters(schema: JsonSchema): string {
  const text = describe(schema, 0)
  return text.length > maxSignatureChars ? `${text.slice(0, maxSignatureChars)}…` : text
}

/** The text for a model whose arguments do not fit: what is wrong, and what the tool expects. */
export function badArguments(tool: string, problem: string, parameters: JsonSchema): string {
  return `Error: bad arguments for ${tool}: ${problem}. Expected ${describeParameters(parameters)}. Correct them and call it again.`
}

function describe(schema: unknown, depth: number): string {
  if (!isJsonObject(schema) || depth > maxDepth) return 'value'
  if ('const' in schema) return JSON.stringify(schema['const'])
  const choices = schema['enum']
  if (Array.isArray(choices)) return alternatives(choices, (choice) => JSON.stringify(choice))
  const options = schema['anyOf'] ?? schema['oneOf']
  if (Array.isArray(options)) return alternatives(options, (option) => describe(option, depth + 1))
  const { type } = schema
  if (Array.isArray(type)) return alternatives(type, String)
  if (type === 'array') return `[${describe(schema['items'], depth + 1)}, …]`
  if (type === 'object' && isJsonObject(schema['properties']))
    return describeObject(schema, schema['properties'], depth)
  return typeof type === 'string' ? type : 'value'
}

function describeObject(schema: JsonSchema, properties: JsonSchema, depth: number): string {
  const required = new Set(Array.isArray(schema['required']) ? schema['required'] : [])
  const fields = Object.entries(properties).map(
    ([name, field]) => `${JSON.stringify(name)}${required.has(name) ? '' : '?'}: ${describe(field, depth + 1)}`,
  )
  return `{${fields.join(', ')}}`
}

function alternatives(options: readonly unknown[], text: (option: unknown) => string): string {
  const shown = options.slice(0, maxChoices).map(text)
  if (options.length > maxChoices) shown.push('…')
  return shown.join(' | ')
}
