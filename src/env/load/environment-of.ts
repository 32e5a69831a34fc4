import { fileURLToPath } from 'node:url'
import { MillraceError } from '../../errors/index.ts'
import { jsonOrText, nearestName } from '../../kit/index.ts'
import { type StandardSchema, validate, type Validated } from '../../schema/index.ts'
import { jsonSchemaOf } from '../../tools/index.ts'
import { checkEnvironment } from '../define/check-environment.ts'
import type { Environment } from '../define/define-environment.ts'

export type RawOptions = Readonly<Record<string, unknown>>

export interface LoadedEnvironment {
  readonly name: string
  readonly environment: Environment
  /** The validated options, with defaults, for the environment's functions. */
  readonly options: unknown
  /** The options before validation: plain values, with which the same environment can be loaded elsewhere. */
  readonly rawOptions: RawOptions
  /** The module's URL; undefined for an environment that was given as an object and cannot be loaded again. */
  readonly specifier: string | undefined
}

/** Checks an environment and its options. Text is read as a number, a boolean or JSON where the schema asks for one. */
export function environmentOf(environment: unknown, rawOptions: RawOptions, specifier?: string): LoadedEnvironment {
  checkEnvironment(environment, specifier === undefined ? 'the given value' : fileURLToPath(specifier))
  const { name, options: schema } = environment
  if (!schema) {
    const [unknown] = Object.keys(rawOptions)
    if (unknown !== undefined) {
      throw new MillraceError('config_invalid', `${name} has no option "${unknown}": it takes no options; leave it out`)
    }
    return { name, environment, options: {}, rawOptions, specifier }
  }
  refuseUnknownNames(name, schema, rawOptions)
  let taken = rawOptions
  let validated = validateNow(name, schema, taken)
  if (validated.problem !== undefined) {
    taken = readText(rawOptions, new Set(validated.issues.map(({ path }) => firstStep(path))))
    validated = validateNow(name, schema, taken)
  }
  if (validated.problem !== undefined) {
    throw new MillraceError(
      'config_invalid',
      `the options of ${name} do not fit: ${validated.problem}. Set them with --env.<name>=<value> (options).`,
    )
  }
  return { name, environment, options: validated.value, rawOptions: taken, specifier }
}

function validateNow(name: string, schema: StandardSchema, value: unknown): Validated<unknown> {
  const validated = validate(schema, value)
  if (!(validated instanceof Promise)) return validated
  throw new MillraceError(
    'env_invalid',
    `the options of ${name} have an asynchronous schema; the schema must be synchronous`,
  )
}

function refuseUnknownNames(name: string, schema: StandardSchema, rawOptions: RawOptions): void {
  const known = knownNames(schema)
  const unknown = known && Object.keys(rawOptions).find((option) => !known.includes(option))
  if (!known || unknown === undefined) return
  const near = nearestName(unknown, known)
  const list = known.length > 0 ? `It takes: ${known.join(', ')}` : 'It takes no options'
  throw new MillraceError(
    'config_invalid',
    `${name} has no option "${unknown}"${near ? `; did you mean "${near}"?` : '.'} ${list}`,
  )
}

/** The names of a schema's options; undefined if it takes any name, or does not tell. */
function knownNames(schema: StandardSchema): string[] | undefined {
  try {
    const { properties, additionalProperties } = jsonSchemaOf(schema)
    if (typeof properties !== 'object' || properties === null || additionalProperties) return undefined
    return Object.keys(properties)
  } catch {
    // A schema that cannot be described still validates, and reports its own issues.
    return undefined
  }
}

/** The options with the text of those at fault read as values. A fault without a place may concern any option. */
function readText(rawOptions: RawOptions, atFault: ReadonlySet<string | undefined>): RawOptions {
  const entries = Object.entries(rawOptions).map(([name, value]): [string, unknown] => [
    name,
    atFault.has(name) || atFault.has(undefined) ? valueOf(value) : value,
  ])
  return Object.fromEntries(entries)
}

function valueOf(value: unknown): unknown {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) {
    return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, valueOf(inner)]))
  }
  return typeof value === 'string' ? jsonOrText(value) : value
}

function firstStep(path: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined): string | undefined {
  const step = path?.[0]
  if (step === undefined) return undefined
  return String(typeof step === 'object' ? step.key : step)
}
