import type { JsonObject, ToolDefinition } from '../schema/index.ts'
import { optionalList, typedObject, type TypedObject } from './_request-fields.ts'
import type { Untranslatable } from './_untranslatable.ts'

/**
 * Reads the functions among the `tools` of OpenAI's APIs, which differ only in where they describe a function. Other tools,
 * such as those that a server runs by itself, are known to the client's API alone.
 */
export function openAiTools(
  body: JsonObject,
  untranslatable: Untranslatable,
  readFunction: (tool: TypedObject, at: string) => ToolDefinition,
): ToolDefinition[] {
  const tools: ToolDefinition[] = []
  for (const [index, value] of (optionalList(body, 'tools') ?? []).entries()) {
    const at = `tools[${index}]`
    const tool = typedObject(value, at)
    if (tool.type === 'function') tools.push(readFunction(tool, at))
    else untranslatable.add(`${at}.type ${tool.type}`)
  }
  return tools
}
