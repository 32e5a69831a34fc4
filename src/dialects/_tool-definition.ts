import type { JsonObject, ToolDefinition } from '../schema/index.ts'

/** A function that takes nothing: what no parameters mean. */
const noParameters: JsonObject = { type: 'object', properties: {} }

/** What each API says of a function, under whatever names. */
export interface FunctionFacts {
  readonly name: string
  readonly description: string | undefined
  readonly parameters: JsonObject | undefined
  readonly strict: boolean | undefined
}

/** A tool in one form and order, so that the same one has the same JSON whichever API it came in. */
export function toolDefinition({
  name,
  description,
  parameters = noParameters,
  strict,
}: FunctionFacts): ToolDefinition {
  return {
    type: 'function',
    function: {
      name,
      ...(description !== undefined && { description }),
      parameters,
      ...(strict !== undefined && { strict }),
    },
  }
}
