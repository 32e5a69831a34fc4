import { Ajv, type ValidateFunction } from 'ajv'
import { Ajv2020 } from 'ajv/dist/2020.js'
import { isJsonObject, type StandardSchema, type ValidationResult } from '../schema/index.ts'
import { BoundedPattern } from './_bounded-pattern.ts'
import { readableIssues } from './_readable-issues.ts'
import type { JsonSchema } from './json-schema.ts'

type Arguments = Readonly<Record<string, unknown>>

/** A schema given as JSON Schema, which is what tool servers have. */
export interface JsonSchemaParameters extends StandardSchema<unknown, Arguments> {
  readonly jsonSchema: JsonSchema
}

const cache = new WeakMap<JsonSchema, JsonSchemaParameters>()

/** How ajv is told to make patterns. The name is for code that is written to a file, which is never done here. */
const patterns = Object.assign((source: string, flags: string) => new BoundedPattern(source, flags), {
  code: 'boundedPattern',
})

/** The same for the same schema object. Compiles it when the first arguments come, since most tools of a server are never called. */
export function jsonSchemaParameters(schema: JsonSchema): JsonSchemaParameters {
  const known = cache.get(schema)
  if (known) return known
  let check: ValidateFunction | undefined
  const made: JsonSchemaParameters = {
    // Models send named arguments, whatever a careless server says about them.
    jsonSchema: schema['type'] === 'object' ? schema : { ...schema, type: 'object' },
    '~standard': {
      version: 1,
      vendor: 'millrace',
      validate(value): ValidationResult<Arguments> {
        if (!isJsonObject(value)) return { issues: [{ message: 'expected an object' }] }
        check ??= compile(schema)
        return check(value) ? { value } : { issues: readableIssues(check.errors ?? []) }
      },
    },
  }
  cache.set(schema, made)
  return made
}

/** Never throws. */
function compile(schema: JsonSchema): ValidateFunction {
  const { $schema: dialect, ...plain } = schema
  // Older drafts say `items: [ … ]` where the newest says `prefixItems`; without a word about it MCP means the newest.
  const Dialect = typeof dialect === 'string' && /draft-0[3-7]/.test(dialect) ? Ajv : Ajv2020
  // An instance for each schema: one for all would keep every schema, and refuse the second one of the same `$id`.
  const ajv = new Dialect({
    strict: false,
    allErrors: true,
    verbose: true,
    validateSchema: false,
    validateFormats: false,
    meta: false,
    logger: false,
    code: { regExp: patterns },
  })
  try {
    return ajv.compile(plain)
  } catch {
    // Nothing can be checked by a schema that is none; the server will say what it thinks of the arguments.
    return ajv.compile({})
  }
}
