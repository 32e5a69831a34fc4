import type { ToolChoice } from '../inference/index.ts'
import type { Json, JsonObject, ToolDefinition } from '../schema/index.ts'
import { isAbsent, isEmpty, isJsonObject, isList } from './_json.ts'
import { openAiTools } from './_openai-tools.ts'
import { rejected } from './_rejected.ts'
import { anyText, optionalList, optionalObject, optionalText, requiredText, typedObject } from './_request-fields.ts'
import type { TypedObject } from './_request-fields.ts'
import { openAiToolChoice } from './_tool-choice.ts'
import { toolDefinition } from './_tool-definition.ts'
import { ToolNames } from './_tool-names.ts'
import { freeformSchema } from './tool-input.ts'
import type { Untranslatable } from './_untranslatable.ts'

/** The type of an item of the input that declares tools. */
export const additionalTools = 'additional_tools'

const functionFields: ReadonlySet<string> = new Set(['type', 'name', 'description', 'parameters', 'strict'])
const freeformFields: ReadonlySet<string> = new Set(['type', 'name', 'description', 'format'])

/** Fields of a tool without which the model sees the same tool: when it is loaded, and what it returns. */
const hints: ReadonlySet<string> = new Set(['defer_loading', 'output_schema', 'async'])

/** Tools that OpenAI runs by itself. Their newer versions have a date after the name. */
const hostedTools =
  /^(web_search|web_search_preview|file_search|code_interpreter|image_generation|mcp|tool_search|programmatic_tool_calling)(_\d{4}_\d{2}_\d{2})?$/

/** The tools of a request. */
export interface ResponsesTools {
  readonly tools: ToolDefinition[]
  readonly toolNames?: ToolNames
}

/** Reads the tools. A function's fields stand beside its type here, not under `function` as in Chat. */
export function readTools(body: JsonObject, untranslatable: Untranslatable): ResponsesTools {
  if (!untranslatable.isTranslated) {
    return { tools: openAiTools(body, untranslatable, (tool, at) => readFunction(tool, at, untranslatable)) }
  }
  const reader = new ToolReader(untranslatable)
  reader.read(optionalList(body, 'tools') ?? [], 'tools')
  const { input } = body
  for (const [index, item] of (isList(input) ? input : []).entries()) {
    if (!isJsonObject(item) || item['type'] !== additionalTools) continue
    const { tools } = item
    const at = `input[${index}].tools`
    if (!isList(tools)) throw rejected(at, 'must be a list of tools')
    reader.read(tools, at)
  }
  return { tools: reader.names.functions, toolNames: reader.names }
}

interface Namespace {
  readonly name: string
  readonly description: string
}

/** Reads tools of all kinds as functions, for an API that has no others. */
class ToolReader {
  readonly names = new ToolNames()
  readonly #untranslatable: Untranslatable

  constructor(untranslatable: Untranslatable) {
    this.#untranslatable = untranslatable
  }

  read(tools: readonly Json[], place: string, namespace?: Namespace): void {
    for (const [index, value] of tools.entries()) {
      const at = `${place}[${index}]`
      const tool = typedObject(value, at)
      const { type } = tool
      if (type === 'function') {
        this.#declare('function', readFunction(tool, at, this.#untranslatable), namespace)
      } else if (type === 'custom') {
        this.#declare('custom', readFreeform(tool, at, this.#untranslatable), namespace)
      } else if (type === 'namespace' && namespace === undefined) {
        this.#readNamespace(tool, at)
      } else if (hostedTools.test(type)) {
        this.#untranslatable.addHosted(`${at}.type ${type}`)
      } else {
        this.#untranslatable.add(`${at}.type ${type}`)
      }
    }
  }

  /** Declares a tool. A function has no namespace, so the model reads the namespace's description before the tool's own. */
  #declare(kind: 'function' | 'custom', tool: ToolDefinition, namespace: Namespace | undefined): void {
    const { name, description = '' } = tool.function
    const texts = [namespace?.description ?? '', description].filter((text) => text !== '')
    const described = texts.length > 0 ? { description: texts.join('\n\n') } : {}
    this.names.declare(
      { kind, name, namespace: namespace?.name },
      { ...tool, function: { ...tool.function, ...described } },
    )
  }

  #readNamespace(tool: TypedObject, at: string): void {
    const name = requiredText(tool, 'name', `${at}.`)
    const { tools } = tool
    if (!isList(tools)) throw rejected(`${at}.tools`, 'must be a list of tools')
    const description = optionalText(tool, 'description', `${at}.`) ?? ''
    this.read(tools, `${at}.tools`, { name, description })
  }
}

function readFunction(tool: TypedObject, at: string, untranslatable: Untranslatable): ToolDefinition {
  noteOtherFields(tool, { at, known: functionFields, untranslatable })
  return toolDefinition(tool, `${at}.`)
}

/**
 * Reads a freeform tool, whose input is a text, as a function with one parameter. No API enforces its grammar there, so it
 * is told to the model in the description.
 */
function readFreeform(tool: TypedObject, at: string, untranslatable: Untranslatable): ToolDefinition {
  noteOtherFields(tool, { at, known: freeformFields, untranslatable })
  const description = optionalText(tool, 'description', `${at}.`) ?? ''
  const grammar = grammarOf(optionalObject(tool, 'format', `${at}.`), `${at}.format.`)
  const texts = [description, grammar].filter((text) => text !== '')
  return {
    type: 'function',
    function: {
      name: requiredText(tool, 'name', `${at}.`),
      ...(texts.length > 0 && { description: texts.join('\n\n') }),
      parameters: freeformSchema,
    },
  }
}

function grammarOf(format: JsonObject | undefined, at: string): string {
  if (format?.['type'] !== 'grammar') return ''
  const syntax = requiredText(format, 'syntax', at)
  return `The text in \`input\` must match this ${syntax} grammar:\n${anyText(format, 'definition', at)}`
}

function noteOtherFields(
  tool: TypedObject,
  { at, known, untranslatable }: { at: string; known: ReadonlySet<string>; untranslatable: Untranslatable },
): void {
  for (const key of Object.keys(tool)) {
    const value = tool[key]
    if (known.has(key) || isAbsent(value) || value === false) continue
    if (hints.has(key) || (key === 'allowed_callers' && isDirect(value))) untranslatable.addDropped(`${at}.${key}`)
    else untranslatable.add(`${at}.${key}`)
  }
}

/** Whether the model may call the tool itself, and not only programs that it writes. */
function isDirect(callers: Json | undefined): boolean {
  return isEmpty(callers) || (isList(callers) && callers.includes('direct'))
}

export function readToolChoice(
  body: JsonObject,
  untranslatable: Untranslatable,
  names?: ToolNames,
): ToolChoice | undefined {
  const { tool_choice: choice } = body
  if (names && !isAbsent(choice) && typeof choice !== 'string') {
    const { type, ...named } = typedObject(choice, 'tool_choice')
    if (type === 'function' || type === 'custom') {
      const name = requiredText(named, 'name', 'tool_choice.')
      return { name: names.nameOf({ kind: type, name, namespace: optionalText(named, 'namespace', 'tool_choice.') }) }
    }
  }
  return openAiToolChoice(body, untranslatable, (named) => requiredText(named, 'name', 'tool_choice.'))
}
