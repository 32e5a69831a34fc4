import { inspect } from 'node:util'
import { nearestName } from '../kit/index.ts'

/** An object that an author wrote, before it was checked. */
export type Fields = Readonly<Record<string, unknown>>

/** What the value of a field must be. `expected` follows "must be". */
export interface FieldRule {
  readonly isRight: (value: unknown) => boolean
  readonly expected: string
}

export const schemaRule: FieldRule = { isRight: isSchema, expected: 'a schema, such as z.object({ … })' }

export const functionRule: FieldRule = { isRight: isFunction, expected: 'a function' }

/** Finds fields that look like misspelt ones of ours. Other unknown fields are the author's own and are allowed. */
export function misspelt(fields: Fields, known: readonly string[], path = ''): string[] {
  return Object.keys(fields).flatMap((field) => {
    const near = known.includes(field) ? undefined : nearestName(field, known)
    return near === undefined ? [] : [`\`${path}${field}\` is not known; did you mean \`${near}\`?`]
  })
}

export function isFields(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

export function isFunction(value: unknown): boolean {
  return typeof value === 'function'
}

function isSchema(value: unknown): boolean {
  if ((typeof value !== 'object' && typeof value !== 'function') || value === null || !('~standard' in value))
    return false
  const standard = value['~standard']
  return isFields(standard) && isFunction(standard['validate'])
}

/** What stands in place of something else: itself if that is short, else what kind of thing it is. */
export function briefly(value: unknown): string {
  if (value === undefined) return 'missing'
  if (Array.isArray(value)) return 'an array'
  const isLong = isFields(value) || isFunction(value)
  return isLong ? `a value of type ${typeof value}` : inspect(value, { maxStringLength: 60 })
}
