import type { JsonObject, ToolDefinition } from '../schema/index.ts'
import { optionalFlag, optionalObject, optionalText, requiredText } from './_request-fields.ts'

/** A function that takes nothing: what no parameters mean. */
const noParameters: JsonObject = { type: 'object', properties: {} }

/**
 * A function that the client runs, as every API describes one but for the name of its parameters. In one form and order,
 * so that the same tool has the same JSON whichever API it came in.
 */
export function toolDefinition(fields: JsonObject, at: string, schema?: JsonObject): ToolDefinition {
  const name = requiredText(fields, 'name', at)
  const description = optionalText(fields, 'description', at)
  const parameters = schema ?? optionalObject(fields, 'parameters', at) ?? noParameters
  const strict = optionalFlag(fields, 'strict', at)
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
