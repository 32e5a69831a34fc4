import { isJsonList, type Json } from '../schema/index.ts'

// Narrowing JSON that a client wrote. Bodies are read by hand, field by field: a schema library costs more than the rest of
// a request's handling.

export { isJsonList as isList, isJsonObject } from '../schema/index.ts'

/** Clients write null for what they leave out. */
export function isAbsent(value: Json | undefined): value is null | undefined {
  return value === null || value === undefined
}

export function isEmpty(value: Json | undefined): boolean {
  return isAbsent(value) || (isJsonList(value) && value.length === 0)
}
