import type { ToolChoice } from '../inference/index.ts'
import type { JsonObject } from '../schema/index.ts'
import { isAbsent } from './_json.ts'
import { rejected } from './_rejected.ts'
import { typedObject, type TypedObject } from './_request-fields.ts'
import type { Untranslatable } from './_untranslatable.ts'

/** Reads `tool_choice` of OpenAI's APIs, which differ only in where they name the function. */
export function openAiToolChoice(
  { tool_choice: choice }: JsonObject,
  untranslatable: Untranslatable,
  nameIn: (named: TypedObject) => string,
): ToolChoice | undefined {
  if (isAbsent(choice)) return undefined
  if (choice === 'auto' || choice === 'none' || choice === 'required') return choice
  if (typeof choice === 'string')
    throw rejected('tool_choice', 'must be "auto", "none", "required" or a named function')
  const named = typedObject(choice, 'tool_choice')
  if (named.type === 'function') return { name: nameIn(named) }
  untranslatable.add(`tool_choice.type ${named.type}`)
  return undefined
}
