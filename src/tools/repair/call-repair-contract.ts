import type { JsonObject, ToolRepair } from '../../schema/index.ts'
import type { NamedTool } from '../_tool-names.ts'
import type { WrittenCall } from '../written-call.ts'

/** A tool that calls can be repaired towards. */
export interface RepairTarget extends NamedTool {
  /** JSON Schema of the tool's arguments. */
  readonly parameters: Readonly<Record<string, unknown>>
  /**
   * Whether the tool takes these arguments as they are, for tools that accept more than their JSON Schema says (a preprocess, a
   * transform). Asked only about arguments that do not fit the schema, before anything is done to them.
   */
  readonly accepts?: (args: JsonObject) => boolean
}

export type RepairedCall =
  | {
      readonly kind: 'call'
      /** The name of the target. */
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
  repair(call: WrittenCall): RepairedCall
  /** Whether a call that gave this result is to be made once more with other arguments. */
  retryAfter(
    name: string,
    args: JsonObject,
    resultText: string,
  ): { readonly arguments: JsonObject; readonly repair: ToolRepair } | undefined
}
