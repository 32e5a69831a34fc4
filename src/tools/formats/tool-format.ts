import type { ToolDefinition } from '../../schema/index.ts'
import type { ParsedToolCall } from '../tool-turn.ts'

export const toolFormatNames = ['mcp-xml', 'hermes', 'llama', 'pythonic'] as const

export type ToolFormatName = (typeof toolFormatNames)[number]

export interface DescribedTool {
  readonly definition: ToolDefinition
  /** The server that the tool is on, and its name there, for formats that tell models about servers. */
  readonly server?: string | undefined
  readonly serverToolName?: string | undefined
}

/** A way to call tools in plain text, for models whose servers do not parse calls. */
export interface ToolFormat {
  readonly name: ToolFormatName
  /** The text for the system prompt: which tools there are, and how to call them. */
  describe(tools: readonly DescribedTool[]): string
  /** The calls in a reply, outside of its reasoning. A broken block is a call too, so that the model is told. */
  parse(text: string, idBase: string): readonly ParsedToolCall[]
  /** The result of one call, as a part of the user message that answers the reply. */
  result(call: ParsedToolCall, text: string, isError: boolean): string
}

/** A call as it was found in a text. Parts that could not be read are empty. */
export interface FoundCall {
  readonly name: string
  readonly arguments: string
  readonly server?: string
}

export function numbered(found: readonly FoundCall[], idBase: string): readonly ParsedToolCall[] {
  return found.map(({ name, arguments: args, server }, index) => ({
    id: `${idBase}_${index}`,
    type: 'function',
    function: { name, arguments: args },
    ...(server !== undefined && { server }),
  }))
}

/** Compact JSON, with the same keys in the same order whoever made the definition. */
function toolJson({ definition }: DescribedTool): string {
  const { name, description, parameters } = definition.function
  return JSON.stringify({ name, ...(description !== undefined && { description }), parameters })
}

export function toolLines(tools: readonly DescribedTool[]): string {
  return tools.map(toolJson).join('\n')
}
