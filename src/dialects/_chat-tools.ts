import type { ResponseFormat, ToolChoice } from '../inference/index.ts'
import type { JsonObject, ToolDefinition } from '../schema/index.ts'
import { isJsonObject } from './_json.ts'
import { openAiTools } from './_openai-tools.ts'
import { rejected } from './_rejected.ts'
import { requiredText } from './_request-fields.ts'
import { openAiFormat } from './_response-format.ts'
import { openAiToolChoice } from './_tool-choice.ts'
import { toolDefinition } from './_tool-definition.ts'
import type { Untranslatable } from './_untranslatable.ts'

export function readChatTools(body: JsonObject, untranslatable: Untranslatable): ToolDefinition[] {
  return openAiTools(body, untranslatable, ({ function: described }, at) => {
    if (!isJsonObject(described)) throw rejected(`${at}.function`, 'must be an object with a name')
    return toolDefinition(described, `${at}.function.`)
  })
}

export function readChatToolChoice(body: JsonObject, untranslatable: Untranslatable): ToolChoice | undefined {
  return openAiToolChoice(body, untranslatable, ({ function: called }) => {
    if (!isJsonObject(called)) throw rejected('tool_choice.function', 'must be an object with the name of a tool')
    return requiredText(called, 'name', 'tool_choice.function.')
  })
}

export function readChatFormat(body: JsonObject, untranslatable: Untranslatable): ResponseFormat | undefined {
  return openAiFormat(body['response_format'], 'response_format', untranslatable, ({ json_schema: fields }) => {
    const at = 'response_format.json_schema'
    if (!isJsonObject(fields)) throw rejected(at, 'must be an object with name and schema')
    return { fields, at: `${at}.` }
  })
}
