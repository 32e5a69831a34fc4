import { hasInexactNumber, isNestedWithin, parseExactly } from '../kit/index.ts'
import type { JsonObject } from '../schema/index.ts'
import { isJsonObject } from './_json.ts'

/**
 * The key under which Anthropic's documentation wraps arguments that are no JSON object, where an object is required.
 * Nothing is repaired or left out: the client sees what the model wrote and that it is not valid. When the client sends the
 * call back, the wrapped text becomes the arguments again.
 */
const invalidKey = 'INVALID_JSON'

/** Arguments that are nested deeper than this count as invalid too: writing them again would overflow the stack. */
const maxDepth = 256

/**
 * The arguments of a call as an object, for writing: numbers that a double cannot hold are kept as the model wrote them. An
 * empty text becomes an empty object: models call a tool without parameters like that.
 */
export function toolInput(written: string): JsonObject {
  const input = plainInput(written)
  if (!hasInexactNumber(input)) return input
  const exact = parseExactly(written)
  return isJsonObject(exact) ? exact : input
}

function plainInput(written: string): JsonObject {
  if (written === '') return {}
  let value: unknown
  try {
    value = JSON.parse(written)
  } catch {
    return { [invalidKey]: written }
  }
  return isJsonObject(value) && isNestedWithin(maxDepth, value) ? value : { [invalidKey]: written }
}

/** The arguments as the text of an object: the model's own text, unless that is no object. */
export function toolInputText(written: string): string {
  const input = plainInput(written)
  return Object.keys(input).length === 1 && input[invalidKey] === written ? JSON.stringify(input) : written
}

/** The text of an input. JSON loses how the model wrote it (spaces, `1.0`): compare with `argumentsKey`. */
export function writtenArguments(input: JsonObject): string {
  const wrapped = input[invalidKey]
  if (typeof wrapped === 'string' && Object.keys(input).length === 1) return wrapped
  return JSON.stringify(input)
}

/**
 * A key that is equal for arguments that mean the same. A client of Messages gets an object and sends an object back, so the
 * text of a call it repeats mostly differs from the text that was sampled. Many clients have no other numbers than doubles.
 */
export function argumentsKey(written: string): string {
  return JSON.stringify(plainInput(written))
}
