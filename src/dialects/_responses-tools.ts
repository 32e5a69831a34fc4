import type { ToolChoice } from '../inference/index.ts'
import type { JsonObject, ToolDefinition } from '../schema/index.ts'
import { isAbsent } from './_json.ts'
import { rejected } from './_rejected.ts'
import {
  optionalFlag,
  optionalList,
  optionalObject,
  optionalText,
  requiredText,
  typedObject,
} from './_request-fields.ts'
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
  return toolDefinition({
    name: requiredText(tool, 'name', at),
    description: optionalText(tool, 'description', at),
    parameters: optionalObject(tool, 'parameters', at),
    strict: optionalFlag(tool, 'strict', at),
  })
}

export function readToolChoice(body: JsonObject, untranslatable: Untranslatable): ToolChoice | undefined {
  const choice = body['tool_choice']
  if (isAbsent(choice)) return undefined
  if (choice === 'auto' || choice === 'none' || choice === 'required') return choice
  if (typeof choice === 'string')
    throw rejected('tool_choice', 'must be "auto", "none", "required" or a named function')
  const named = typedObject(choice, 'tool_choice')
  if (named.type === 'function') return { name: requiredText(named, 'name', 'tool_choice.') }
  untranslatable.add(`tool_choice.type ${named.type}`)
  return undefined
}
