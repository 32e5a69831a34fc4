/** Functions that TypeScript does not know yet (ES2026, Node 21 and up). */
interface SourceJson {
  parse(text: string, revive: (key: string, value: unknown, context: { readonly source?: string }) => unknown): unknown
  rawJSON(text: string): object
  isRawJSON(value: unknown): value is { readonly rawJSON: string }
}

const json: SourceJson = JSON as typeof JSON & SourceJson

/** How deep numbers are looked for. */
const maxDepth = 256
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
export function hasInexactNumber(value: unknown, depth = maxDepth): boolean {
  if (typeof value === 'number') return isInexact(value)
  if (typeof value !== 'object' || value === null || depth === 0) return false
  for (const inner of Object.values(value)) if (hasInexactNumber(inner, depth - 1)) return true
  return false
}

/** A number in a JSON text that no double equals. */
export interface LostNumber {
  readonly path: readonly (string | number)[]
  /** The number as it was written. */
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
  if (typeof value !== 'object' || value === null || path.length === maxDepth) return undefined
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
