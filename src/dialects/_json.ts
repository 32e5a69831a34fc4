import type { Json, JsonObject } from '../schema/index.ts'

/**
 * Narrows JSON that a client wrote. Bodies are read by hand, field by field: a schema library costs more than the rest of
 * a request's handling.
 */
export function isJsonObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

export function isList(value: Json | undefined): value is readonly Json[] {
  return Array.isArray(value)
}

/** Clients write null for what they leave out. */
export function isAbsent(value: Json | undefined): value is null | undefined {
  return value === null || value === undefined
}

export function isEmpty(value: Json | undefined): boolean {
  return isAbsent(value) || (isList(value) && value.length === 0)
}
