import type * as Ajv from 'ajv'
import type { ErrorObject } from 'ajv'
import type * as Ajv2020 from 'ajv/dist/2020.js'
import { kindOfValue, nearestName, onFirstUse } from '../kit/index.ts'
import { isJsonObject, type StandardSchema, type ValidationIssue, type ValidationResult } from '../schema/index.ts'
import { describeParameters, type JsonSchema } from './json-schema.ts'
import { runWithTimeout } from './run-with-timeout.ts'

const loadDraft7 = onFirstUse((load) => load('ajv') as typeof Ajv)
const loadDraft2020 = onFirstUse((load) => load('ajv/dist/2020.js') as typeof Ajv2020)

type Arguments = Readonly<Record<string, unknown>>

/** A schema given as JSON Schema, as tool servers have it. */
export interface JsonSchemaParameters extends StandardSchema<unknown, Arguments> {
  readonly jsonSchema: JsonSchema
}

const checks = new WeakMap<JsonSchema, SchemaCheck>()

/** Ajv's errors for arguments, each with the value and the schema at its place; none if they fit. */
type SchemaCheck = (value: Arguments) => readonly ErrorObject[]

/** Arguments are usually checked in microseconds. The rest is for a machine that is busy. */
const timeoutMs = 100
/** A check that was stopped this often is not made again: each time it held up all rollouts of the thread. */
const maxStops = 3

export function jsonSchemaParameters(schema: JsonSchema): JsonSchemaParameters {
  return {
    // Models send named arguments, even if a careless server does not say `object`.
    jsonSchema: schema['type'] === 'object' ? schema : { ...schema, type: 'object' },
    '~standard': {
      version: 1,
      vendor: 'millrace',
      validate(value): ValidationResult<Arguments> {
        if (!isJsonObject(value)) return { issues: [{ message: 'expected an object' }] }
        const errors = schemaErrors(schema, value)
        return errors.length === 0 ? { value } : { issues: readableIssues(errors) }
      },
    },
  }
}

/** What is wrong with arguments. The schema is compiled for the first of them, since most tools of a server are never called. */
export function schemaErrors(schema: JsonSchema, value: Arguments): readonly ErrorObject[] {
  let check = checks.get(schema)
  if (!check) {
    check = boundedCheck(schema)
    checks.set(schema, check)
  }
  return check(value)
}

/** Patterns are the server's, texts a model's, and some take for ever. After a stop the arguments pass, and the server judges. */
function boundedCheck(schema: JsonSchema): SchemaCheck {
  const check = compile(schema)
  const errorsOf: SchemaCheck = (value) => (check(value) ? [] : (check.errors ?? []))
  // A parameter may be named `pattern`: then a schema follows, not a text.
  if (!/"(?:pattern":"|patternProperties":)/.test(JSON.stringify(schema))) return errorsOf
  let stops = 0
  return (value) => {
    if (stops === maxStops) return []
    const errors = runWithTimeout(timeoutMs, () => errorsOf(value))
    if (!errors) stops += 1
    return errors ?? []
  }
}

function compile(schema: JsonSchema): Ajv.ValidateFunction {
  const { $schema: dialect, ...plain } = schema
  // Older drafts write `items: [ … ]` where the newest writes `prefixItems`; without `$schema` MCP means the newest.
  const isOlder = typeof dialect === 'string' && /draft-0[3-7]/.test(dialect)
  const Dialect = isOlder ? loadDraft7().Ajv : loadDraft2020().Ajv2020
  // One instance per schema: a shared one would keep every schema, and refuse a second one with the same `$id`.
  const ajv = new Dialect({
    strict: false,
    allErrors: true,
    // A parameter may be named `constructor`.
    ownProperties: true,
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

/** A model corrects a few mistakes at a time; more of them only cost it context. */
const maxIssues = 8

/** Ajv's errors, in words that tell a model what to send instead. */
function readableIssues(errors: readonly ErrorObject[]): ValidationIssue[] {
  return withoutAlternatives(errors).slice(0, maxIssues).map(toIssue)
}

function toIssue(error: ErrorObject): ValidationIssue {
  const path = pathOf(error.instancePath)
  const { keyword, data } = error
  const params: Readonly<Record<string, unknown>> = error.params
  switch (keyword) {
    case 'required':
      return { path: [...path, String(params['missingProperty'])], message: 'is missing' }
    case 'additionalProperties':
    case 'unevaluatedProperties':
      return {
        path,
        message: unknownName(String(params['additionalProperty'] ?? params['unevaluatedProperty']), error),
      }
    case 'type':
      return { path, message: `expected ${[params['type']].flat().join(' or ')}, got ${kindOfValue(data)}` }
    case 'enum':
    case 'const':
    case 'anyOf':
    case 'oneOf':
      return { path, message: `expected ${describeParameters(error.parentSchema ?? {})}` }
    default:
      return { path, message: error.message ?? `does not satisfy "${keyword}"` }
  }
}

/** Of the errors of alternatives and their summary keeps those further inside, or else the summary. */
function withoutAlternatives(errors: readonly ErrorObject[]): readonly ErrorObject[] {
  const dropped = new Set<ErrorObject>()
  errors.forEach((summary, index) => {
    if (summary.keyword !== 'anyOf' && summary.keyword !== 'oneOf') return
    const branches = errors.slice(0, index).filter((error) => isBranchOf(summary, error))
    const hasInner = branches.some((error) => error.instancePath !== summary.instancePath)
    if (hasInner) dropped.add(summary)
    for (const error of branches) if (error.instancePath === summary.instancePath) dropped.add(error)
  })
  return errors.filter((error) => !dropped.has(error))
}

function isBranchOf(summary: ErrorObject, error: ErrorObject): boolean {
  if (!error.instancePath.startsWith(summary.instancePath)) return false
  // A branch that is a reference has the schema path of its target.
  return error.schemaPath.startsWith(`${summary.schemaPath}/`) || /^#\/(\$defs|definitions)\//.test(error.schemaPath)
}

function unknownName(name: string, { parentSchema }: ErrorObject): string {
  const properties: unknown = parentSchema?.['properties']
  const known = typeof properties === 'object' && properties !== null ? Object.keys(properties) : []
  const near = nearestName(name, known)
  return `unknown "${name}"${near === undefined ? '' : `; did you mean "${near}"?`}`
}

/** `/items/0/a~1b` as its steps. */
export function pathOf(pointer: string): string[] {
  return pointer
    .split('/')
    .slice(1)
    .map((step) => step.replaceAll('~1', '/').replaceAll('~0', '~'))
}
