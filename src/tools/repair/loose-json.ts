import { jsonrepair } from 'jsonrepair'
import { isJsonObject } from '../../schema/index.ts'
import { readArguments, type ReadArguments, withoutLoss } from '../tool-turn.ts'
import { runWithTimeout } from '../run-with-timeout.ts'

/** Longer arguments must be valid JSON: the thread that repairs them serves all rollouts. */
export const maxRepairedChars = 128 * 1024

/** Nobody means deeper nesting; the library closes every bracket that was opened. */
const maxRepairedDepth = 256

/** Reads arguments that may be broken: as they are, else repaired as a whole, else the first object in them. */
export function readLoosely(text: string): ReadArguments {
  const strict = readArguments(text)
  if (strict.value) return strict
  if (text.length > maxRepairedChars) {
    return { problem: `${strict.problem}; more than ${maxRepairedChars} characters are not repaired` }
  }
  const whole = parseIfJson(text)
  // JSON that is no object is not broken, but something else; except for an object that was quoted once too often.
  if (whole !== undefined) return (typeof whole === 'string' ? readRepairedJson(whole) : undefined) ?? strict
  const escaped = keepBackslashes(text)
  return readRepairedJson(escaped) ?? readRepaired(escaped) ?? readFirstObject(escaped) ?? strict
}

/** Doubles the backslash in `\d` and `C:\users`, which the library would drop. `\'` and line ends are left to the library. */
function keepBackslashes(text: string): string {
  return text.replaceAll(/\\(u[0-9a-fA-F]{4}|[^])/g, (pair, escaped: string) =>
    escaped.length > 1 || '"\\/bfnrt\'\n'.includes(escaped) ? pair : `\\${pair}`,
  )
}

function readRepaired(text: string): ReadArguments | undefined {
  // Python's long strings: the library takes their content for keys.
  if (text.includes('"""')) return undefined
  const repaired = repairJson(text)
  if (repaired === undefined || isDeeper(parseIfJson(repaired), maxRepairedDepth)) return undefined
  // The library takes the apostrophe of 'it's' for a double quote: a text without double quotes must not get one.
  if (repaired.includes('\\"') && !/["\u201c\u201d]|&quot;|&#/.test(text)) return undefined
  return readRepairedJson(repaired)
}

function readFirstObject(text: string): ReadArguments | undefined {
  let first: string | undefined
  for (const candidate of balancedObjects(text)) {
    first ??= candidate
    const read = readRepairedJson(candidate)
    if (read) return read
  }
  // Only the first object is repaired, as there may be many side by side. If it is the whole text, that was tried before.
  return first === undefined || first === text.trim() ? undefined : readRepaired(first)
}

function readRepairedJson(json: string): ReadArguments | undefined {
  const value = parseIfJson(json)
  return isJsonObject(value) ? withoutLoss(value, json, true) : undefined
}

/** A text that can be repaired takes milliseconds, even a long one. The rest is for a machine that is busy. */
const timeoutMs = 500

/**
 * Repairs text that is nearly JSON, with the library `jsonrepair`; undefined if that fails. On odd quotes the library starts over
 * again and again: its time grows with the cube of the text, and the thread it runs on serves all rollouts. So it is stopped. Its
 * streaming form is linear, but never ends where a list stands in the place of a key (`{"a": 1, [2]}`).
 */
function repairJson(text: string): string | undefined {
  return runWithTimeout(timeoutMs, () => {
    try {
      return jsonrepair(text)
    } catch {
      return undefined
    }
  })
}

/** The `{…}` that stand side by side. An object that does not close ends the search: all after it would stand inside it. */
function* balancedObjects(text: string): Generator<string, void, undefined> {
  let start = -1
  let depth = 0
  let isInString = false
  for (let index = text.indexOf('{'); index >= 0 && index < text.length; index += 1) {
    const char = text[index]
    if (isInString) {
      if (char === '\\') index += 1
      else if (char === '"') isInString = false
    } else if (char === '"') {
      // A quote between objects is prose.
      isInString = depth > 0
    } else if (char === '{') {
      if (depth === 0) start = index
      depth += 1
    } else if (char === '}' && depth > 0) {
      depth -= 1
      if (depth === 0) yield text.slice(start, index + 1)
    }
  }
}

function isDeeper(value: unknown, depth: number): boolean {
  if (typeof value !== 'object' || value === null) return false
  return depth === 0 || Object.values(value).some((inner) => isDeeper(inner, depth - 1))
}

export function parseIfJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
