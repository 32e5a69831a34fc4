import type { ResponseFormat } from '../inference/index.ts'
import type { JsonObject, ToolDefinition } from '../schema/index.ts'
import { isAbsent, isEmpty, isJsonObject, isList } from './_json.ts'
import { rejected } from './_rejected.ts'
import type { RequestDraft } from './_request-draft.ts'
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

/** Tools that Anthropic runs by itself; the names of most have a date at the end. */
const hostedTools = /^(web_search|web_fetch|code_execution|tool_search_tool\w*?|mcp_toolset|advisor)(_\d{8})?$/

/**
 * Reads the tools that the client runs itself. Other tools are run by Anthropic's server, or only that server knows them in
 * detail.
 */
export function readMessagesTools(body: JsonObject, untranslatable: Untranslatable): ToolDefinition[] {
  const tools: ToolDefinition[] = []
  for (const [index, tool] of (optionalList(body, 'tools') ?? []).entries()) {
    const at = `tools[${index}]`
    if (!isJsonObject(tool)) throw rejected(at, 'must be an object')
    const type = optionalText(tool, 'type', `${at}.`) ?? 'custom'
    if (type === 'custom') tools.push(readTool(tool, at, untranslatable))
    else if (hostedTools.test(type)) untranslatable.addHosted(`${at}.type ${type}`)
    else untranslatable.add(`${at}.type ${type}`)
  }
  return tools
}

function readTool(tool: JsonObject, at: string, untranslatable: Untranslatable): ToolDefinition {
  const place = `${at}.`
  const parameters = optionalObject(tool, 'input_schema', place)
  if (!parameters) throw rejected(`${at}.input_schema`, 'is missing: describe the input as a JSON Schema')
  // Without the search that would load it later, a tool is loaded from the start.
  if (tool['defer_loading'] === true) untranslatable.addDropped(`${at}.defer_loading`)
  // These fields change what the model sees of a tool, or who may call it. Hints about caching and streaming do not.
  if (!isEmpty(tool['input_examples'])) untranslatable.add(`${at}.input_examples`)
  const callers = tool['allowed_callers']
  if (!isEmpty(callers) && !(isList(callers) && callers.every((caller) => caller === 'direct'))) {
    untranslatable.add(`${at}.allowed_callers`)
  }
  return toolDefinition(tool, place, parameters)
}

/** Reads which tool to call, and whether several may be called at once: both are in `tool_choice` here. */
export function readMessagesChoice(body: JsonObject, request: RequestDraft, untranslatable: Untranslatable): void {
  const value = body['tool_choice']
  if (isAbsent(value)) return
  const choice = typedObject(value, 'tool_choice')
  if (choice.type === 'auto' || choice.type === 'none') request.toolChoice = choice.type
  else if (choice.type === 'any') request.toolChoice = 'required'
  else if (choice.type === 'tool') request.toolChoice = { name: requiredText(choice, 'name', 'tool_choice.') }
  else untranslatable.add(`tool_choice.type ${choice.type}`)
  const isSingle = optionalFlag(choice, 'disable_parallel_tool_use', 'tool_choice.')
  if (isSingle !== undefined) request.parallelToolCalls = !isSingle
}

/** Reads a schema for the reply, under its current name or that of the beta. */
export function readMessagesFormat(body: JsonObject, untranslatable: Untranslatable): ResponseFormat | undefined {
  const config = optionalObject(body, 'output_config') ?? {}
  for (const key of Object.keys(config)) {
    if (key !== 'format' && key !== 'effort' && !isAbsent(config[key])) untranslatable.add(`output_config.${key}`)
  }
  const value = config['format'] ?? body['output_format']
  if (isAbsent(value)) return undefined
  const at = isAbsent(config['format']) ? 'output_format' : 'output_config.format'
  const format = typedObject(value, at)
  if (format.type !== 'json_schema') {
    untranslatable.add(`${at}.type ${format.type}`)
    return undefined
  }
  const schema = optionalObject(format, 'schema', `${at}.`)
  if (!schema) throw rejected(`${at}.schema`, 'is missing: describe the reply as a JSON Schema')
  // In this API a schema has no name, and is always followed strictly.
  return { kind: 'json_schema', name: 'output', schema, strict: true }
}
