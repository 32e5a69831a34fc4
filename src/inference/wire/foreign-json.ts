/**
 * Helpers to read JSON from outside. The shapes that a dialect expects are declared with every field `unknown`, and these
 * helpers narrow them one by one: a schema library would cost more than the rest of the reply's handling.
 */
export function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** A non-empty string, or undefined. */
export function textOrNothing(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined
}

/** A number of tokens; 0 for anything else. */
export function tokenCount(value: unknown): number {
  return typeof value === 'number' && value > 0 && Number.isFinite(value) ? Math.floor(value) : 0
}
