import { exactSource, hasInexactNumber, isNestedWithin, parseExactly } from '../kit/index.ts'
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

/** Claude Code's own wrapper of arguments that are no JSON: their text and its length. A long text may be cut off. */
const unparsedKey = '__unparsedToolInput'

/** The text of an input. JSON loses how the model wrote it (spaces, `1.0`): compare with `argumentsKey`. */
export function writtenArguments(input: JsonObject): string {
  if (Object.keys(input).length === 1) {
    const { [invalidKey]: wrapped, [unparsedKey]: unparsed } = input
    if (typeof wrapped === 'string') return wrapped
    const { raw, len } = isJsonObject(unparsed) ? unparsed : {}
    if (typeof raw === 'string' && raw.length === len) return raw
  }
  return JSON.stringify(input)
}

/** The parameters of a function that stands for a freeform tool: the tool's input is a text of its own. */
export const freeformSchema: JsonObject = {
  type: 'object',
  properties: { input: { type: 'string', description: 'The whole input of the tool, as plain text.' } },
  required: ['input'],
  additionalProperties: false,
}

/**
 * The input of a freeform tool from the arguments of its function. Arguments of another shape are wrapped, so that
 * `freeformArguments` gives them back as the model wrote them.
 */
export function freeformInput(written: string): string {
  const { input, ...others } = plainInput(written)
  const isPlain = typeof input === 'string' && Object.keys(others).length === 0 && unwrapped(input) === undefined
  return isPlain ? input : JSON.stringify({ [invalidKey]: written })
}

/** The arguments for the input of a freeform tool. JSON loses how the model wrote them: compare with `argumentsKey`. */
export function freeformArguments(input: string): string {
  return unwrapped(input) ?? JSON.stringify({ input })
}

/** The arguments that `freeformInput` has wrapped; undefined for any other text. */
function unwrapped(text: string): string | undefined {
  if (!text.startsWith(`{"${invalidKey}":`)) return undefined
  const { [invalidKey]: wrapped, ...others } = plainInput(text)
  return typeof wrapped === 'string' && Object.keys(others).length === 0 ? wrapped : undefined
}

/**
 * A key that is equal for arguments that mean the same. A client of Messages gets an object and sends an object back, so the
 * text of a call it repeats mostly differs from the text that was sampled. Many clients have no other numbers than doubles.
 */
export function argumentsKey(written: string): string {
  return JSON.stringify(plainInput(written))
}

/** Numbers that two texts may spell differently and a double holds as one: many digits, or an exponent. */
const longNumber = /[\d.]{16}|\d[eE][+-]?\d/

/**
 * Whether a client has sent back the recorded arguments, written in its own way. Given are arguments of the same key, so they
 * are equal to anyone who computes with doubles: spaces, escapes, the order of keys and repeated keys (of which the last counts)
 * do not matter. A number must be the recorded one, or what a double makes of that, because many clients have no others.
 * Arguments that are no JSON object are not compared. `changes`: what the client may have done to the recorded arguments, beside
 * writing them anew; then the key is that of the changed ones.
 */
export function sameArguments(
  recorded: string,
  sent: string,
  changes: readonly ((input: JsonObject) => JsonObject)[] = [],
): boolean {
  if (recorded === sent) return true
  if (sent.includes(invalidKey)) return false
  if (!longNumber.test(recorded) && !longNumber.test(sent)) return true
  const meant = parseExactly(recorded || '{}')
  const repeated = parseExactly(sent || '{}')
  if (isSameJson(meant, repeated)) return true
  return isJsonObject(meant) && changes.some((change) => isSameJson(change(meant), repeated))
}

function isSameJson(recorded: unknown, sent: unknown): boolean {
  const number = numberText(recorded)
  if (number !== undefined) {
    const sentNumber = numberText(sent)
    if (sentNumber === undefined) return false
    const value = decimalOf(sentNumber)
    return value === decimalOf(number) || value === decimalOf(String(Number(number)))
  }
  if (!isObject(recorded) || !isObject(sent)) return recorded === sent
  const names = Object.keys(recorded)
  if (Array.isArray(recorded) !== Array.isArray(sent) || names.length !== Object.keys(sent).length) return false
  return names.every((name) => Object.hasOwn(sent, name) && isSameJson(recorded[name], sent[name]))
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && numberText(value) === undefined
}

/** A number of `parseExactly` as it was written; undefined for everything else. */
function numberText(value: unknown): string | undefined {
  return typeof value === 'number' ? String(value) : exactSource(value)
}

/** The value of a decimal number in one spelling: its digits without zeros around them, and the power of ten. */
function decimalOf(written: string): string {
  const [, sign = '', whole = '', fraction = '', power = '0'] =
    /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/.exec(written) ?? []
  const digits = (whole + fraction).replace(/^0+/, '')
  const short = digits.replace(/0+$/, '')
  if (short === '') return whole === '' ? written : '0'
  return `${sign}${short}e${BigInt(power) - BigInt(fraction.length) + BigInt(digits.length - short.length)}`
}
