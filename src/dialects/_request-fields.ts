import type { Json, JsonObject, Sampling } from '../schema/index.ts'
import { isAbsent, isJsonObject, isList } from './_json.ts'
import { rejected } from './_rejected.ts'

// Readers for the fields of a body, or of an object in it. The optional ones return undefined for a field that is absent or
// null; a value of another type is refused. `at` is the object's place in the body, with its dot (`text.format.`), for the
// message.

/** An object with a `type`, as parts, blocks, items and tools are. */
export type TypedObject = JsonObject & { readonly type: string }

export function typedObject(value: Json | undefined, at: string): TypedObject {
  if (isTyped(value)) return value
  throw rejected(at, 'must be an object with a type')
}

/** A string, which may be empty. */
export function anyText(body: JsonObject, key: string, at: string): string {
  const value = body[key]
  if (typeof value !== 'string') throw rejected(at + key, 'must be a string')
  return value
}

export function requiredText(body: JsonObject, key: string, at = ''): string {
  const value = body[key]
  if (typeof value !== 'string' || value === '') throw rejected(at + key, 'must be a string that is not empty')
  return value
}

export function optionalText(body: JsonObject, key: string, at = ''): string | undefined {
  const value = body[key]
  if (typeof value === 'string') return value
  if (isAbsent(value)) return undefined
  throw rejected(at + key, 'must be a string, or left out')
}

export function optionalFlag(body: JsonObject, key: string, at = ''): boolean | undefined {
  const value = body[key]
  if (typeof value === 'boolean') return value
  if (isAbsent(value)) return undefined
  throw rejected(at + key, 'must be true or false, or left out')
}

/** A number from 0 to `max`. JSON can express numbers that are not finite: `1e309`. */
function optionalNumber(body: JsonObject, key: string, max = Number.MAX_VALUE): number | undefined {
  const value = body[key]
  if (isAbsent(value)) return undefined
  if (typeof value === 'number' && value >= 0 && value <= max) return value
  throw rejected(key, max === Number.MAX_VALUE ? 'must be a number from 0 on' : `must be a number from 0 to ${max}`)
}

/** The fields of the sampling that have the same names in all three APIs. */
export function readTemperature(body: JsonObject): Sampling {
  const sampling: Sampling = {}
  const temperature = optionalNumber(body, 'temperature')
  if (temperature !== undefined) sampling.temperature = temperature
  const topP = optionalNumber(body, 'top_p', 1)
  if (topP !== undefined) sampling.topP = topP
  return sampling
}

/** An optional whole number from 1 on. */
export function optionalCount(body: JsonObject, key: string): number | undefined {
  const value = body[key]
  if (isAbsent(value)) return undefined
  if (isWhole(value) && value >= 1) return value
  throw rejected(key, 'must be a whole number from 1 on, or left out')
}

/** A whole number from 1 on, which must be there. */
export function requiredCount(body: JsonObject, key: string, missing: string): number {
  const value = body[key]
  if (isWhole(value) && value >= 1) return value
  throw rejected(key, isAbsent(value) ? missing : 'must be a whole number from 1 on')
}

export function optionalInteger(body: JsonObject, key: string, at = ''): number | undefined {
  const value = body[key]
  if (isAbsent(value)) return undefined
  if (isWhole(value)) return value
  throw rejected(at + key, 'must be a whole number, or left out')
}

/**
 * An optional whole number that is only passed on: it may be larger than a double holds exactly, because its bytes are sent.
 */
export function optionalSeed(body: JsonObject): number | undefined {
  const { seed } = body
  if (isAbsent(seed)) return undefined
  if (typeof seed === 'number' && Number.isInteger(seed)) return seed
  throw rejected('seed', 'must be a whole number, or left out')
}

export function optionalObject(body: JsonObject, key: string, at = ''): JsonObject | undefined {
  const value = body[key]
  if (isJsonObject(value)) return value
  if (isAbsent(value)) return undefined
  throw rejected(at + key, 'must be an object, or left out')
}

export function optionalList(body: JsonObject, key: string): readonly Json[] | undefined {
  const value = body[key]
  if (isList(value)) return value
  if (isAbsent(value)) return undefined
  throw rejected(key, 'must be a list, or left out')
}

/** Stop sequences: a list, or a single one. */
export function optionalTexts(body: JsonObject, key: string): string[] | undefined {
  const value = body[key]
  if (isAbsent(value)) return undefined
  if (typeof value === 'string') return [value]
  if (isList(value)) {
    const texts = value.filter((text) => typeof text === 'string')
    if (texts.length === value.length) return texts
  }
  throw rejected(key, 'must be a list of strings, or left out')
}

/** The fields that no API knows, which go to the backend as they came; undefined if there are none. */
export function unknownFields(body: JsonObject, known: ReadonlySet<string>): JsonObject | undefined {
  let unknown: [string, Json | undefined][] | undefined
  for (const key of Object.keys(body)) if (!known.has(key)) (unknown ??= []).push([key, body[key]])
  // Not set by assignment: a field may be named `__proto__`.
  return unknown && Object.fromEntries(unknown)
}

function isTyped(value: Json | undefined): value is TypedObject {
  return isJsonObject(value) && typeof value['type'] === 'string'
}

function isWhole(value: Json | undefined): value is number {
  return typeof value === 'number' && Number.isSafeInteger(value)
}
