/** `typeof`, but `null` and arrays are not objects: what a person calls a value in JSON. */
export function kindOfValue(value: unknown): string {
  if (Array.isArray(value)) return 'array'
  return value === null ? 'null' : typeof value
}
