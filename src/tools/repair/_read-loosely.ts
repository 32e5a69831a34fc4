import { isJsonObject } from '../../schema/index.ts'
import { readArguments, withoutLoss, type ReadArguments } from '../_read-arguments.ts'
import { balancedObjects, nestingOf } from './_balanced-objects.ts'
import { parseIfJson } from './_parse-if-json.ts'
import { repairJson } from './_repair-json.ts'

/** Longer arguments must be valid JSON: the thread that repairs them serves all rollouts. */
export const maxRepairedChars = 128 * 1024

/** Nobody means deeper nesting; the library closes every bracket that was opened. */
const maxRepairedDepth = 256

/** Reads arguments that may be broken: as they are, else repaired as a whole, else the first object in them. */
export function readLoosely(text: string): ReadArguments {
  const strict = readArguments(text)
  if (strict.value) return strict
  if (text.length > maxRepairedChars) {
    const problem = `${strict.problem}; more than ${maxRepairedChars} characters are not repaired`
    return { problem }
  }
  const whole = parseIfJson(text)
  // JSON that is no object is not broken, but something else; except for an object that was quoted once too often.
  if (whole !== undefined) return (typeof whole === 'string' ? readRepairedJson(whole) : undefined) ?? strict
  const escaped = keepBackslashes(text)
  return readRepairedJson(escaped) ?? readRepaired(escaped) ?? readFirstObject(escaped) ?? strict
}

/**
 * Doubles the backslash in `\d` and `C:\users`, as JSON wants; the library would drop it. `\'` and a backslash at the end of a
 * line are left to the library.
 */
function keepBackslashes(text: string): string {
  return text.replaceAll(/\\(u[0-9a-fA-F]{4}|[^])/g, (pair, escaped: string) =>
    escaped.length > 1 || '"\\/bfnrt\'\n'.includes(escaped) ? pair : `\\${pair}`,
  )
}

function readRepaired(text: string): ReadArguments | undefined {
  // Python's long strings: the library takes their content for keys.
  if (text.includes('"""')) return undefined
  const repaired = repairJson(text)
  if (repaired === undefined || nestingOf(repaired) > maxRepairedDepth) return undefined
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
