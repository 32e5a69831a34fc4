import type { JsonObject, ToolDefinition } from '../schema/index.ts'
import { optionalFlag, optionalObject, optionalText, requiredText } from './_request-fields.ts'

/** The schema of a function without parameters. */
const noParameters: JsonObject = { type: 'object', properties: {} }

/**
 * Reads a function that the client runs. The APIs describe it alike, except for the name of its parameters. It gets one form
 * and order of fields, so that the same tool has the same JSON whichever API it came in.
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
