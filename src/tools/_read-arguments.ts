import { MillraceError } from '../errors/index.ts'
import { isJsonObject, type JsonObject } from '../schema/index.ts'

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
    return isJsonObject(value) ? { value, json: text, isRepaired: false } : { problem: notAnObject(value) }
  } catch (error) {
    return { problem: `not valid JSON (${MillraceError.from(error, 'internal').rawMessage})` }
  }
}

function notAnObject(value: unknown): string {
  const kind = Array.isArray(value) ? 'a list' : value === null ? 'null' : `a ${typeof value}`
  return `they are ${kind}, and must be one JSON object with a name for each argument`
}
