import type { ToolDefinition } from '../../schema/index.ts'
import type { WrittenCall } from '../written-call.ts'

export const toolFormatNames = ['mcp-xml', 'hermes', 'llama', 'pythonic'] as const

export type ToolFormatName = (typeof toolFormatNames)[number]

/** A tool as a format describes it to the model. */
export interface DescribedTool {
  readonly definition: ToolDefinition
  /** The server that the tool is on, and its name there, for formats that tell models about servers. */
  readonly server?: string
  readonly serverToolName?: string
}

/** A way to call tools in plain text, for models whose servers do not parse calls. */
export interface ToolFormat {
  readonly name: ToolFormatName
  /** The text for the system prompt: which tools there are, and how to call them. */
  describe(tools: readonly DescribedTool[]): string
  /**
   * The calls in a reply, in order. Reasoning is not looked at. A broken block is a call too, as far as it can be read, so that
   * the model is told. Ids are made from `idBase` and the call's place.
   */
  parse(text: string, idBase: string): readonly WrittenCall[]
  /** The result of one call, as a part of the user message that answers the reply. */
  result(call: WrittenCall, text: string, isError: boolean): string
}
