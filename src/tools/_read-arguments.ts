import { MillraceError } from '../errors/index.ts'
import { lostNumber } from '../kit/index.ts'
import { describeIssues, isJsonObject, type JsonObject } from '../schema/index.ts'

export type ReadArguments =
  | {
      readonly value: JsonObject
      readonly problem?: undefined
      /** The JSON that was read; it differs from the model's text if that had to be repaired. */
      readonly json: string
      readonly isRepaired: boolean
    }
  /** Words to follow "bad arguments for …:". */
  | { readonly value?: undefined; readonly problem: string }

/** The arguments of a call. An empty text counts as `{}`: some models send that to a tool without parameters. */
export function readArguments(text: string): ReadArguments {
  if (text.trim() === '') return { value: {}, json: '{}', isRepaired: false }
  try {
    const value: unknown = JSON.parse(text)
    return isJsonObject(value) ? withoutLoss(value, text, false) : { problem: notAnObject(value) }
  } catch (error) {
    return { problem: `not valid JSON (${MillraceError.from(error, 'internal').rawMessage})` }
  }
}

/**
 * Refuses a number that would reach the tool as another one, such as an id of 19 digits: a tool that is called with the wrong id
 * does something else than the model meant, and nobody would know.
 */
export function withoutLoss(value: JsonObject, json: string, isRepaired: boolean): ReadArguments {
  const lost = lostNumber(json, value)
  if (!lost) return { value, json, isRepaired }
  const { path, source } = lost
  const shown = source.length > maxShownChars ? `${source.slice(0, maxShownChars)}…` : source
  const message = `the number ${shown} cannot be passed on exactly; send it as a string if the tool takes one, or a smaller number`
  return { problem: describeIssues([{ path, message }]) }
}

const maxShownChars = 60

function notAnObject(value: unknown): string {
  const kind = Array.isArray(value) ? 'a list' : value === null ? 'null' : `a ${typeof value}`
  return `they are ${kind}, and must be one JSON object with a name for each argument`
}
