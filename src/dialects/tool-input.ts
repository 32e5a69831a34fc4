import { hasInexactNumber, isNestedWithin, parseExactly } from '../kit/index.ts'
import type { JsonObject } from '../schema/index.ts'
import { isJsonObject } from './_json.ts'

/**
 * The key under which Anthropic's documentation wraps arguments that are no JSON object, so that they can be sent where
 * an object must stand. Nothing is repaired or left out: the client sees what the model wrote and that it is not valid,
 * and when it sends the call back, the wrapped text is the arguments again.
 */
const invalidKey = 'INVALID_JSON'

/** Deeper than this, arguments are not valid either: writing them again would overflow the stack. */
const maxDepth = 256

/**
 * The arguments of a call as an object, for writing: numbers that a double cannot hold are in it as the model wrote them.
 * An empty text is how models call a tool that takes nothing.
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

/** The same as text: what the model wrote, unless that is no object. */
export function toolInputText(written: string): string {
  const input = plainInput(written)
  return Object.keys(input).length === 1 && input[invalidKey] === written ? JSON.stringify(input) : written
}

/** The other way round. JSON loses how the model wrote it (spaces, `1.0`): compare with `argumentsKey`. */
export function writtenArguments(input: JsonObject): string {
  const wrapped = input[invalidKey]
  if (typeof wrapped === 'string' && Object.keys(input).length === 1) return wrapped
  return JSON.stringify(input)
}

/**
 * Equal for arguments that mean the same. A client of Messages gets an object and sends an object back, so the text of a
 * call it repeats is in general not the text that was sampled. Many clients have no other numbers than doubles.
 */
export function argumentsKey(written: string): string {
  return JSON.stringify(plainInput(written))
}
