import type { ResponseFormat, ToolChoice } from '../inference/index.ts'
import type { Json, JsonObject, ToolDefinition } from '../schema/index.ts'
import { isAbsent, isJsonObject } from './_json.ts'
import { rejected } from './_rejected.ts'
import {
  optionalFlag,
  optionalList,
  optionalObject,
  optionalText,
  requiredText,
  typedObject,
} from './_request-fields.ts'
import { jsonSchemaFormat } from './_response-format.ts'
import { toolDefinition } from './_tool-definition.ts'
import type { Untranslatable } from './_untranslatable.ts'

/** The functions among the tools: the others are known to this API alone. */
export function readChatTools(body: JsonObject, untranslatable: Untranslatable): ToolDefinition[] {
  const tools: ToolDefinition[] = []
  for (const [index, value] of (optionalList(body, 'tools') ?? []).entries()) {
    const at = `tools[${index}]`
    const tool = typedObject(value, at)
    refuseCustom(tool.type, at)
    if (tool.type === 'function') tools.push(readFunction(tool['function'], `${at}.function`))
    else untranslatable.add(`${at}.type ${tool.type}`)
  }
  return tools
}

/** Calls of such tools are text that is no JSON: a conversation as we keep it has no place for them, recorded or not. */
export function refuseCustom(type: string, at: string): void {
  if (type !== 'custom') return
  throw rejected(`${at}.type`, 'is "custom", which is not supported: make it a function with one string parameter')
}

function readFunction(value: Json | undefined, at: string): ToolDefinition {
  if (!isJsonObject(value)) throw rejected(at, 'must be an object with a name')
  const place = `${at}.`
  return toolDefinition({
    name: requiredText(value, 'name', place),
    description: optionalText(value, 'description', place),
    parameters: optionalObject(value, 'parameters', place),
    strict: optionalFlag(value, 'strict', place),
  })
}

export function readChatToolChoice(body: JsonObject, untranslatable: Untranslatable): ToolChoice | undefined {
  const choice = body['tool_choice']
  if (isAbsent(choice)) return undefined
  if (choice === 'auto' || choice === 'none' || choice === 'required') return choice
  if (typeof choice === 'string')
    throw rejected('tool_choice', 'must be "auto", "none", "required" or a named function')
  const named = typedObject(choice, 'tool_choice')
  if (named.type !== 'function') {
    untranslatable.add(`tool_choice.type ${named.type}`)
    return undefined
  }
  const called = named['function']
  if (!isJsonObject(called)) throw rejected('tool_choice.function', 'must be an object with the name of a tool')
  return { name: requiredText(called, 'name', 'tool_choice.function.') }
}

export function readChatFormat(body: JsonObject, untranslatable: Untranslatable): ResponseFormat | undefined {
  const value = body['response_format']
  if (isAbsent(value)) return undefined
  const format = typedObject(value, 'response_format')
  if (format.type === 'text') return undefined
  if (format.type === 'json_object') return { kind: 'json_object' }
  if (format.type === 'json_schema') return readSchema(format['json_schema'])
  untranslatable.add(`response_format.type ${format.type}`)
  return undefined
}

function readSchema(value: Json | undefined): ResponseFormat {
  if (!isJsonObject(value)) throw rejected('response_format.json_schema', 'must be an object with name and schema')
  const at = 'response_format.json_schema.'
  return jsonSchemaFormat({
    name: requiredText(value, 'name', at),
    description: optionalText(value, 'description', at),
    schema: optionalObject(value, 'schema', at),
    strict: optionalFlag(value, 'strict', at),
  })
}
