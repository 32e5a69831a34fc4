import { z } from 'zod'
import {
  isJsonObject,
  type Json,
  type JsonObject,
  kindOfValue,
  nearestName,
  pathText,
  unknownField,
} from '../kit/index.ts'

/** The part of Standard Schema (standardschema.dev) that Millrace needs, for zod, valibot, arktype and others. */
export interface StandardSchema<Input = unknown, Output = Input> {
  readonly '~standard': {
    readonly version: 1
    readonly vendor: string
    readonly validate: (value: unknown) => ValidationResult<Output> | Promise<ValidationResult<Output>>
    readonly types?: { readonly input: Input; readonly output: Output } | undefined
  }
}

export type ValidationResult<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly ValidationIssue[] }

export interface ValidationIssue {
  readonly message: string
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined
}

export type OutputOf<Schema extends StandardSchema> = NonNullable<Schema['~standard']['types']>['output']

/** An object with these fields and no others: a misspelt field is refused, with the name that was meant. */
export function closedObject<Shape extends z.core.$ZodShape>(shape: Shape): z.ZodObject<Shape, z.core.$strict> {
  const known = Object.keys(shape)
  return z.strictObject(shape, {
    error: ({ code, input }) =>
      code === 'unrecognized_keys' && typeof input === 'object' && input !== null
        ? unknownField(input, known)
        : undefined,
  })
}

/** Any JSON. There is one schema for it, so that a description of an API has one name for it. */
export const jsonSchema: z.ZodType<Json, Json> = z.json()

export const jsonObjectSchema: z.ZodType<JsonObject, JsonObject> = z.record(z.string(), jsonSchema)

/** Parses with our messages; `z.config` would change those of the program that uses Millrace, too. */
export function safeParse<Schema extends z.core.$ZodType>(
  schema: Schema,
  value: unknown,
): z.ZodSafeParseResult<z.output<Schema>> {
  return z.safeParse(schema, value, { error: plainMessage })
}

/** Validates with a schema of any library. Zod's own `validate` takes no messages, so its schemas are parsed. */
function validateStandard<Schema extends StandardSchema>(
  schema: Schema,
  value: unknown,
): ValidationResult<OutputOf<Schema>> | Promise<ValidationResult<OutputOf<Schema>>> {
  if (!(schema instanceof z.core.$ZodType)) return schema['~standard'].validate(value)
  const standardResult = ({ data, error }: z.ZodSafeParseResult<unknown>) =>
    error ? { issues: error.issues } : { value: data }
  try {
    return standardResult(safeParse(schema, value))
  } catch {
    // The schema is asynchronous, or throws again.
    return z.safeParseAsync(schema, value, { error: plainMessage }).then(standardResult)
  }
}

/** Nobody corrects more at a time. */
const maxIssues = 8
const maxQuotedChars = 60

/** `answers[0].value: expected number, got string` for each issue, joined. With the value that was checked, it says what was found. */
export function describeIssues(issues: readonly ValidationIssue[], given?: unknown): string {
  const shown = issues.slice(0, maxIssues).map((issue) => {
    const path = pathText(pathOf(issue))
    const message = describeIssue(issue, given)
    return path ? `${path}: ${message}` : message
  })
  const more = issues.length - shown.length
  return shown.join('; ') + (more > 0 ? `; and ${more} more` : '')
}

/** One issue, without its place. Schemas leave the value out of some messages: it is added here. */
export function describeIssue(issue: ValidationIssue, given?: unknown): string {
  const { message } = issue
  if (given === undefined) return message
  const path = pathOf(issue)
  const found = valueAt(given, path)
  // `z.coerce` made no number of the text.
  if (typeof found === 'string' && message === typeMessage('number', Number.NaN))
    return `expected number, got ${quoted(found)}`
  const choices = choicesOf(issue)
  if (choices.length > 1 && message === choiceMessage(choices)) {
    return found === undefined ? `missing; ${message}` : `${message}, got ${quoted(found)}${meant(choices, found)}`
  }
  if (message !== unfitting) return message
  return found === undefined ? `missing; found ${namesBeside(given, path)}` : `${message}, got ${kindOfValue(found)}`
}

function choicesOf(issue: ValidationIssue | z.core.$ZodIssue): z.core.util.Primitive[] {
  return 'code' in issue && issue.code === 'invalid_value' ? issue.values : []
}

function pathOf({ path = [] }: ValidationIssue): PropertyKey[] {
  return path.map((step) => (typeof step === 'object' ? step.key : step))
}

function meant(choices: readonly unknown[], found: unknown): string {
  if (typeof found !== 'string') return ''
  const near = nearestName(
    found,
    choices.filter((choice) => typeof choice === 'string'),
  )
  return near === undefined ? '' : ` (did you mean "${near}"?)`
}

function namesBeside(given: unknown, path: readonly PropertyKey[]): string {
  const parent = valueAt(given, path.slice(0, -1))
  const names = isJsonObject(parent) ? Object.keys(parent) : []
  const more = names.length > maxIssues ? ` and ${names.length - maxIssues} more` : ''
  return names.slice(0, maxIssues).map(quoted).join(', ') + more || 'nothing'
}

function valueAt(given: unknown, path: readonly PropertyKey[]): unknown {
  let value = given
  for (const step of path) {
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, step)) return undefined
    value = Reflect.get(value, step)
  }
  return value
}

/** Only values of a list of choices and of numbers are quoted: whatever else there is may be a secret, or long. */
function quoted(value: unknown): string {
  if (typeof value !== 'string') return kindOfValue(value)
  return JSON.stringify(value.length > maxQuotedChars ? `${value.slice(0, maxQuotedChars)}…` : value)
}

/** Of a value that none of several schemas takes: the schema says no more. */
const unfitting = 'it matches none of the allowed forms'

const zodMessage = z.locales.en().localeError
const unitOf: Readonly<Record<string, string>> = {
  string: 'characters',
  array: 'items',
  set: 'items',
  map: 'entries',
  file: 'bytes',
}

/** Zod's messages in words that people and models understand better. It asks for them only where an author gave none. */
const plainMessage: z.core.$ZodErrorMap = (issue) => {
  const { joinValues } = z.core.util
  if (issue.code === 'invalid_type') return typeMessage(issue.expected, issue.input)
  if (issue.code === 'invalid_value') return choiceMessage(issue.values)
  if (issue.code === 'too_small') {
    const isEmpty = issue.minimum === 1 && issue.inclusive && (issue.origin === 'string' || issue.origin === 'array')
    return isEmpty
      ? 'must not be empty'
      : boundMessage(issue, issue.minimum, issue.inclusive ? 'at least' : 'more than')
  }
  if (issue.code === 'too_big') return boundMessage(issue, issue.maximum, issue.inclusive ? 'at most' : 'less than')
  if (issue.code === 'unrecognized_keys') return `unknown ${joinValues(issue.keys, ', ')}; leave it out`
  if (issue.code === 'invalid_union') {
    const options: readonly unknown[] = Array.isArray(issue['options']) ? issue['options'] : []
    return options.length > 0 ? `expected ${options.map((option) => `'${String(option)}'`).join(' | ')}` : unfitting
  }
  if (issue.code === 'not_multiple_of') return `must be a multiple of ${issue.divisor}`
  if (issue.code === 'invalid_format') {
    if (issue.format === 'starts_with') return `must start with "${String(issue['prefix'])}"`
    if (issue.format === 'ends_with') return `must end with "${String(issue['suffix'])}"`
    if (issue.format === 'includes') return `must include "${String(issue['includes'])}"`
    if (issue.format === 'regex') return `must match pattern ${issue.pattern}`
  }
  return zodMessage(issue)
}

function choiceMessage(values: z.core.util.Primitive[]): string {
  return `expected ${values.length > 1 ? 'one of ' : ''}${z.core.util.joinValues(values, '|')}`
}

function typeMessage(expected: string, input: unknown): string {
  if (expected === 'int' && typeof input === 'number') return 'expected a whole number'
  // Zod's name for an object whose fields may have any name.
  const wanted = expected === 'record' ? 'object' : expected
  if (input === undefined) return `missing; expected ${wanted}`
  const isOddNumber = typeof input === 'number' && !Number.isFinite(input)
  return `expected ${wanted}, got ${isOddNumber ? input : z.core.util.parsedType(input)}`
}

function boundMessage(
  { origin, exact }: { readonly origin: string; readonly exact?: boolean },
  bound: number | bigint,
  relation: string,
): string {
  const unit = unitOf[origin]
  const size = `${exact ? 'exactly' : relation} ${bound}`
  return unit === undefined ? `expected ${origin} to be ${size}` : `expected ${origin} to have ${size} ${unit}`
}

export type Validated<Value> =
  | { readonly value: Value; readonly problem?: undefined }
  | { readonly value?: undefined; readonly problem: string; readonly issues: readonly ValidationIssue[] }

/** Checks a task, options or arguments; a promise only where the schema is asynchronous. One that throws is a problem. */
export function validate<Schema extends StandardSchema>(
  schema: Schema,
  value: unknown,
): Validated<OutputOf<Schema>> | Promise<Validated<OutputOf<Schema>>> {
  try {
    const result = validateStandard(schema, value)
    return result instanceof Promise
      ? result.then((settled) => toValidated(settled, value), thrownProblem)
      : toValidated(result, value)
  } catch (error) {
    return thrownProblem(error)
  }
}

function toValidated<Value>(result: ValidationResult<Value>, given: unknown): Validated<Value> {
  if (!result.issues) return { value: result.value }
  return { problem: describeIssues(result.issues, given), issues: result.issues }
}

function thrownProblem(thrown: unknown): { problem: string; issues: readonly ValidationIssue[] } {
  const message = thrown instanceof Error ? thrown.message : String(thrown)
  return { problem: message, issues: [{ message }] }
}
