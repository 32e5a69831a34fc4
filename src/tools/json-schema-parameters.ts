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

/** A schema given as JSON Schema, which is what tool servers have. */
export interface JsonSchemaParameters extends StandardSchema<unknown, Arguments> {
  readonly jsonSchema: JsonSchema
}

const cache = new WeakMap<JsonSchema, JsonSchemaParameters>()

/** Arguments are checked in microseconds. The rest is for a machine that is busy. */
const timeoutMs = 100
/** A check that was stopped as often is not made again: each time it has held up all rollouts of the thread. */
const maxStops = 3

/** The same for the same schema object. Compiles it when the first arguments come, since most tools of a server are never called. */
export function jsonSchemaParameters(schema: JsonSchema): JsonSchemaParameters {
  const known = cache.get(schema)
  if (known) return known
  let check: ReturnType<typeof boundedCheck> | undefined
  const made: JsonSchemaParameters = {
    // Models send named arguments, whatever a careless server says about them.
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
 * Patterns are somebody else's, the texts a model wrote, and there are some that take twice as long with every character more:
 * where there are any, the check is stopped in time, and the server is left to say what it thinks of the arguments.
 */
function boundedCheck(schema: JsonSchema): (value: Arguments) => ValidationResult<Arguments> {
  const check = compile(schema)
  const resultOf = (value: Arguments, fits: boolean): ValidationResult<Arguments> =>
    fits ? { value } : { issues: readableIssues(check.errors ?? []) }
  if (!/"pattern(?:Properties)?":/.test(JSON.stringify(schema))) return (value) => resultOf(value, check(value))
  let stops = 0
  return (value) => {
    if (stops === maxStops) return { value }
    const fits = withinTime(timeoutMs, () => check(value))
    if (fits === undefined) stops += 1
    return resultOf(value, fits ?? true)
  }
}

/** Never throws. */
function compile(schema: JsonSchema): Ajv.ValidateFunction {
  const { $schema: dialect, ...plain } = schema
  // Older drafts say `items: [ … ]` where the newest says `prefixItems`; without a word about it MCP means the newest.
  const isOlder = typeof dialect === 'string' && /draft-0[3-7]/.test(dialect)
  const Dialect = isOlder ? loadDraft7().Ajv : loadDraft2020().Ajv2020
  // An instance for each schema: one for all would keep every schema, and refuse the second one of the same `$id`.
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
    // Nothing can be checked by a schema that is none; the server will say what it thinks of the arguments.
    return ajv.compile({})
  }
}
