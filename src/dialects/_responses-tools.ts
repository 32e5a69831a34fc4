import type { ToolChoice } from '../inference/index.ts'
import type { JsonObject, ToolDefinition } from '../schema/index.ts'
import { isAbsent } from './_json.ts'
import { openAiTools } from './_openai-tools.ts'
import { requiredText } from './_request-fields.ts'
import { openAiToolChoice } from './_tool-choice.ts'
import { toolDefinition } from './_tool-definition.ts'
import type { Untranslatable } from './_untranslatable.ts'

const functionFields: ReadonlySet<string> = new Set(['type', 'name', 'description', 'parameters', 'strict'])

/** Reads the tools. A function's fields stand beside its type here, not under `function` as in Chat. */
export function readTools(body: JsonObject, untranslatable: Untranslatable): ToolDefinition[] {
  return openAiTools(body, untranslatable, (tool, at) => {
    for (const key of Object.keys(tool)) {
      if (!functionFields.has(key) && !isAbsent(tool[key]) && tool[key] !== false) untranslatable.add(`${at}.${key}`)
    }
    return toolDefinition(tool, `${at}.`)
  })
}

export function readToolChoice(body: JsonObject, untranslatable: Untranslatable): ToolChoice | undefined {
  return openAiToolChoice(body, untranslatable, (named) => requiredText(named, 'name', 'tool_choice.'))
}
