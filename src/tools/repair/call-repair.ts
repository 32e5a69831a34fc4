import { isJsonList, type Json, type JsonObject, type ToolRepair } from '../../schema/index.ts'
import type { NamedTool } from '../tool-turn.ts'
import type { ParsedToolCall } from '../../tool-formats/index.ts'

export interface RepairTarget extends NamedTool {
  readonly parameters: Readonly<Record<string, unknown>>
  /** Whether the tool takes arguments that do not fit its JSON Schema, as with a preprocess or a transform. */
  readonly accepts?: (args: JsonObject) => boolean
}

export type RepairedCall =
  | {
      readonly kind: 'call'
      readonly name: string
      readonly arguments: JsonObject
      readonly repairs: readonly ToolRepair[]
    }
  /** `message` is the whole text for the model, from "Error:" on: what was wrong and what to do. */
  | {
      readonly kind: 'refused'
      readonly status: 'unknown_tool' | 'bad_arguments'
      readonly message: string
      readonly repairs: readonly ToolRepair[]
    }

/** Made once for a set of tools; never keeps anything of a call. */
export interface CallRepairer {
  repair(call: ParsedToolCall): RepairedCall
  /** Whether a call that gave this result is to be made once more with other arguments. */
  retryAfter(
    name: string,
    args: JsonObject,
    resultText: string,
  ): { readonly arguments: JsonObject; readonly repair: ToolRepair } | undefined
}

const maxTextChars = 500

/** A value in the record of a repair: itself if it is small, else a short description. The call has the whole value. */
export function recorded(value: Json): Json {
  if (typeof value === 'string') return clipped(value)
  if (typeof value !== 'object' || value === null || isSmall(value)) return value
  return isJsonList(value) ? `[… ${value.length} items]` : `{… ${Object.keys(value).length} parameters}`
}

export function clipped(text: string): string {
  return text.length > maxTextChars ? `${text.slice(0, maxTextChars)}… (${text.length} characters)` : text
}

function isSmall(value: Json): boolean {
  try {
    return JSON.stringify(value).length <= maxTextChars
  } catch {
    // Nested deeper than the stack.
    return false
  }
}
