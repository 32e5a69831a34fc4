import type { ToolChoice } from '../inference/index.ts'
import type { JsonObject, ToolDefinition } from '../schema/index.ts'
import { isAbsent } from './_json.ts'
import { optionalList, requiredText, typedObject } from './_request-fields.ts'
import { openAiToolChoice } from './_tool-choice.ts'
import { toolDefinition } from './_tool-definition.ts'
import type { Untranslatable } from './_untranslatable.ts'

const functionFields: ReadonlySet<string> = new Set(['type', 'name', 'description', 'parameters', 'strict'])

/** The functions among the tools: those that a server runs by itself are known to this API alone. */
export function readTools(body: JsonObject, untranslatable: Untranslatable): ToolDefinition[] {
  const tools: ToolDefinition[] = []
  for (const [index, value] of (optionalList(body, 'tools') ?? []).entries()) {
    const at = `tools[${index}]`
    const tool = typedObject(value, at)
    if (tool.type === 'function') tools.push(readFunction(tool, `${at}.`, untranslatable))
    else untranslatable.add(`${at}.type ${tool.type}`)
  }
  return tools
}

/** Here a function's fields stand beside its type, not under `function` as in chat. */
function readFunction(tool: JsonObject, at: string, untranslatable: Untranslatable): ToolDefinition {
  for (const key of Object.keys(tool)) {
    if (!functionFields.has(key) && !isAbsent(tool[key]) && tool[key] !== false) untranslatable.add(at + key)
  }
  return toolDefinition(tool, at)
}

export function readToolChoice(body: JsonObject, untranslatable: Untranslatable): ToolChoice | undefined {
  return openAiToolChoice(body, untranslatable, (named) => requiredText(named, 'name', 'tool_choice.'))
}
