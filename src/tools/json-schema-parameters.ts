import type * as Ajv from 'ajv'
import type * as Ajv2020 from 'ajv/dist/2020.js'
import { onFirstUse } from '../kit/index.ts'
import { isJsonObject, type StandardSchema, type ValidationResult } from '../schema/index.ts'
import { readableIssues } from './_readable-issues.ts'
import { withinTime } from './_within-time.ts'
import type { JsonSchema } from './json-schema.ts'

const loadDraft7 = onFirstUse((load) => load('ajv') as typeof Ajv)
const loadDraft2020 = onFirstUse((load) => load('ajv/dist/2020.js') as typeof Ajv2020)

type Arguments = Readonly<Record<string, unknown>>

/** A schema given as JSON Schema, as tool servers have it. */
export interface JsonSchemaParameters extends StandardSchema<unknown, Arguments> {
  readonly jsonSchema: JsonSchema
}

const cache = new WeakMap<JsonSchema, JsonSchemaParameters>()

/** Arguments are usually checked in microseconds. The rest is for a machine that is busy. */
const timeoutMs = 100
/** A check that was stopped this often is not made again: each time it held up all rollouts of the thread. */
const maxStops = 3

/**
 * The parameters of a schema; the same object for the same schema. Compiled for the first arguments, since most tools of a server
 * are never called.
 */
export function jsonSchemaParameters(schema: JsonSchema): JsonSchemaParameters {
  const known = cache.get(schema)
  if (known) return known
  let check: ReturnType<typeof boundedCheck> | undefined
  const made: JsonSchemaParameters = {
    // Models send named arguments, even if a careless server does not say `object`.
    jsonSchema: schema['type'] === 'object' ? schema : { ...schema, type: 'object' },
    '~standard': {
      version: 1,
      vendor: 'millrace',
      validate(value): ValidationResult<Arguments> {
        if (!isJsonObject(value)) return { issues: [{ message: 'expected an object' }] }
        check ??= boundedCheck(schema)
        return check(value)
      },
    },
  }
  cache.set(schema, made)
  return made
}

/**
 * Checks arguments within a time limit if the schema has patterns: these are the server's, the texts are a model's, and some
 * patterns take twice as long with every further character. After a stop the arguments pass, and the server judges them.
 */
function boundedCheck(schema: JsonSchema): (value: Arguments) => ValidationResult<Arguments> {
  const check = compile(schema)
  const resultOf = (value: Arguments, fits: boolean): ValidationResult<Arguments> =>
    fits ? { value } : { issues: readableIssues(check.errors ?? []) }
  // A parameter may be named `pattern`: then a schema follows, not a text.
  if (!/"(?:pattern":"|patternProperties":)/.test(JSON.stringify(schema)))
    return (value) => resultOf(value, check(value))
  let stops = 0
  return (value) => {
    if (stops === maxStops) return { value }
    const fits = withinTime(timeoutMs, () => check(value))
    if (fits === undefined) stops += 1
    return resultOf(value, fits ?? true)
  }
}

/** Compiles a schema; never throws. */
function compile(schema: JsonSchema): Ajv.ValidateFunction {
  const { $schema: dialect, ...plain } = schema
  // Older drafts write `items: [ … ]` where the newest writes `prefixItems`; without `$schema` MCP means the newest.
  const isOlder = typeof dialect === 'string' && /draft-0[3-7]/.test(dialect)
  const Dialect = isOlder ? loadDraft7().Ajv : loadDraft2020().Ajv2020
  // One instance per schema: a shared one would keep every schema, and refuse a second one with the same `$id`.
  const ajv = new Dialect({
    strict: false,
    allErrors: true,
    verbose: true,
    validateSchema: false,
    validateFormats: false,
    meta: false,
    logger: false,
  })
  try {
    return ajv.compile(plain)
  } catch {
    // An invalid schema checks nothing; the server judges the arguments.
    return ajv.compile({})
  }
}
