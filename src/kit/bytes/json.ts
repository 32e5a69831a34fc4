import { isUtf8 } from 'node:buffer'
import { backslash, closeBrace, closeBracket, openBrace, openBracket, quote } from './json-bytes.ts'
import { commonLength } from './typed-arrays.ts'

export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json | undefined }
export type JsonObject = { readonly [key: string]: Json | undefined }

export function isJsonObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

export function isJsonList(value: Json | undefined): value is readonly Json[] {
  return Array.isArray(value)
}

/** Functions that TypeScript does not know yet (ES2026, Node 21 and up). */
interface SourceJson {
  parse(text: string, revive: (key: string, value: unknown, context: { readonly source?: string }) => unknown): unknown
  rawJSON(text: string): object
  isRawJSON(value: unknown): value is { readonly rawJSON: string }
}

const json: SourceJson = JSON as typeof JSON & SourceJson

const searchDepth = 256
/** A decimal of so many digits at most survives the way through a double. */
const certainDigits = 15

/**
 * `JSON.parse` for documents that are written again. A number that would not be written as it came (an integer beyond 2^53,
 * 1e400, -0, more digits than a double has) becomes an object that `JSON.stringify` writes as the same text. Parsing so is
 * several times slower: ask `hasInexactNumber` first.
 */
export function parseExactly(text: string): unknown {
  return json.parse(text, keepSource)
}

/** The text of a number that `parseExactly` could not hold as a number; undefined for every other value. */
export function exactSource(value: unknown): string | undefined {
  return json.isRawJSON(value) ? value.rawJSON : undefined
}

/**
 * Whether a parsed value contains a number that may have been another one in its text. A long decimal that parses to the same
 * double as a short one is not noticed: to anything that computes with doubles they are the same number.
 */
export function hasInexactNumber(value: unknown, depth = searchDepth): boolean {
  if (typeof value === 'number') return isInexact(value)
  if (typeof value !== 'object' || value === null || depth === 0) return false
  for (const inner of Object.values(value)) if (hasInexactNumber(inner, depth - 1)) return true
  return false
}

interface LostNumber {
  readonly path: readonly (string | number)[]
  readonly source: string
}

/**
 * The first number in `text` that a parser loses: an integer of other digits than the double nearest to it, or a number too large
 * for any. Decimals are not looked at, which doubles round as a rule. `parsed` is what `JSON.parse` made of the text.
 */
export function lostNumber(text: string, parsed: unknown): LostNumber | undefined {
  return hasInexactNumber(parsed) ? lostIn(parseExactly(text), []) : undefined
}

function lostIn(value: unknown, path: LostNumber['path']): LostNumber | undefined {
  if (json.isRawJSON(value)) return isLost(value.rawJSON) ? { path, source: value.rawJSON } : undefined
  if (typeof value !== 'object' || value === null || path.length === searchDepth) return undefined
  for (const [key, inner] of Object.entries(value)) {
    const found = lostIn(inner, [...path, Array.isArray(value) ? Number(key) : key])
    if (found) return found
  }
  return undefined
}

function isLost(source: string): boolean {
  const value = Number(source)
  return !Number.isFinite(value) || (/^-?\d+$/.test(source) && BigInt(source) !== BigInt(value))
}

function isInexact(value: number): boolean {
  if (Number.isSafeInteger(value)) return Object.is(value, -0)
  return !Number.isFinite(value) || Number.isInteger(value) || String(value).length > certainDigits
}

function keepSource(_key: string, value: unknown, { source }: { readonly source?: string }): unknown {
  if (typeof value !== 'number' || source === undefined || String(value) === source) return value
  return json.rawJSON(source)
}

/** Within a string, so many bytes are looked at one by one before the rest is searched at once: most strings are short. */
const shortString = 32

/** What is wrong with a body that nests too deep. If only a part of it is given, `within` is how many levels are around that. */
export function depthProblem(bytes: Uint8Array, maxDepth: number, within = 0): string | undefined {
  if (!isDeeperThan(bytes, maxDepth - within)) return undefined
  return `a body has at most ${maxDepth} levels of nesting; flatten it`
}

/**
 * Whether JSON nests deeper than so many levels, told from its bytes before anything is made of them. Text that is not valid
 * JSON may get either answer: the parser refuses it afterwards.
 */
export function isDeeperThan(bytes: Uint8Array, maxDepth: number): boolean {
  let depth = 0
  for (let at = 0; at < bytes.length; at += 1) {
    const byte = bytes[at]
    if (byte === quote) at = endOfString(bytes, at + 1)
    else if (byte === openBrace || byte === openBracket) {
      depth += 1
      if (depth > maxDepth) return true
    } else if (byte === closeBrace || byte === closeBracket) depth -= 1
  }
  return false
}

function endOfString(bytes: Uint8Array, from: number): number {
  const soon = Math.min(bytes.length, from + shortString)
  for (let at = from; at < soon; at += 1) {
    if (bytes[at] === quote) return at
    if (bytes[at] === backslash) at += 1
  }
  // The last byte that was looked at may have been a backslash, and the one after it belongs to it.
  let at = bytes.indexOf(quote, soon)
  while (at !== -1 && isEscaped(bytes, at, from)) at = bytes.indexOf(quote, at + 1)
  return at === -1 ? bytes.length : at
}

function isEscaped(bytes: Uint8Array, at: number, from: number): boolean {
  let before = at - 1
  while (before >= from && bytes[before] === backslash) before -= 1
  return (at - 1 - before) % 2 === 1
}

/** What is wrong with a body that is not UTF-8: decoding would replace such bytes in silence. */
export function utf8Problem(bytes: Uint8Array): string | undefined {
  if (isUtf8(bytes)) return undefined
  // Decoded and encoded again, the bytes differ first where one was replaced.
  const decoded = Buffer.from(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('utf8'))
  return `the body is not UTF-8 (byte ${commonLength(bytes, decoded)} begins no character); send it in this encoding`
}

export function jsonOrText(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}

export function isJson(text: string): boolean {
  try {
    JSON.parse(text)
    return true
  } catch {
    return false
  }
}

/** Whether no part of a JSON value lies deeper than this many arrays and objects. */
export function isNestedWithin(levels: number, value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return true
  if (levels === 0) return false
  for (const inner of Object.values(value)) if (!isNestedWithin(levels - 1, inner)) return false
  return true
}

/** `typeof`, but `null` and arrays are not objects: what a person calls a value in JSON. */
export function kindOfValue(value: unknown): string {
  if (Array.isArray(value)) return 'array'
  return value === null ? 'null' : typeof value
}
