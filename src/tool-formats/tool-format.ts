import type { ToolCall, ToolDefinition } from '../schema/index.ts'

/** A call as a model wrote it: natively, or in its text, where a format may name the server too. */
export interface ParsedToolCall extends ToolCall {
  readonly server?: string
}

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
  /** Finds the calls in a reply, outside of its reasoning. A broken block is a call too, so that the model is told. */
  find(text: string): FoundCalls
  /** The calls that `find` finds, with ids. */
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

export interface FoundCalls {
  readonly calls: readonly FoundCall[]
  /** Where the first call begins; the length of the text if there is none. */
  readonly start: number
}

export function toolFormat(format: Omit<ToolFormat, 'parse'>): ToolFormat {
  return {
    ...format,
    parse: (text, idBase) => format.find(text).calls.map((call, index) => numbered(call, `${idBase}_${index}`)),
  }
}

function numbered({ name, arguments: args, server }: FoundCall, id: string): ParsedToolCall {
  const call = { id, type: 'function', function: { name, arguments: args } } as const
  return server === undefined ? call : { ...call, server }
}

/** Compact JSON, with the same keys in the same order whoever made the definition. */
function toolJson({ definition }: DescribedTool): string {
  const { name, description, parameters } = definition.function
  return JSON.stringify({ name, ...(description !== undefined && { description }), parameters })
}

export function toolLines(tools: readonly DescribedTool[]): string {
  return tools.map(toolJson).join('\n')
}
