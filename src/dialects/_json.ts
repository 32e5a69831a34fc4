import { isJsonList, type Json } from '../schema/index.ts'

// Helpers to narrow JSON from clients. Bodies are read by hand, field by field: a schema library would cost more than the
// rest of a request's handling.

export { isJsonList as isList, isJsonObject } from '../schema/index.ts'

/** Whether a field is missing. Clients also write null for fields that they leave out. */
export function isAbsent(value: Json | undefined): value is null | undefined {
  return value === null || value === undefined
}

export function isEmpty(value: Json | undefined): boolean {
  return isAbsent(value) || (isJsonList(value) && value.length === 0)
}
