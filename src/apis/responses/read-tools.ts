import type { ToolChoice } from '../backend.ts'
import { isJsonList, isJsonObject, type Json, type JsonObject, type ToolDefinition } from '../../schema/index.ts'
import {
  anyText,
  isAbsent,
  isEmpty,
  openAiToolChoice,
  openAiTools,
  optionalList,
  optionalObject,
  optionalText,
  rejected,
  requiredText,
  toolDefinition,
  typedObject,
  type TypedObject,
  typedObjects,
  type Unsupported,
} from '../request-fields.ts'
import { ToolNames } from './tool-names.ts'
import { freeformSchema } from '../tool-input.ts'

export const additionalTools = 'additional_tools'

const functionFields: ReadonlySet<string> = new Set(['type', 'name', 'description', 'parameters', 'strict'])
const freeformFields: ReadonlySet<string> = new Set(['type', 'name', 'description', 'format'])

/** Fields of a tool without which the model sees the same tool: when it is loaded, and what it returns. */
const hints: ReadonlySet<string> = new Set(['defer_loading', 'output_schema', 'async'])

/** Tools that OpenAI runs by itself. Their newer versions have a date after the name. */
const hostedTools =
  /^(web_search|web_search_preview|file_search|code_interpreter|image_generation|mcp|tool_search|programmatic_tool_calling)(_\d{4}_\d{2}_\d{2})?$/

/** Reads the tools. A function's fields stand beside its type here, not under `function` as in Chat. */
export function readTools(
  body: JsonObject,
  unsupported: Unsupported,
): { tools: ToolDefinition[]; toolNames?: ToolNames } {
  if (!unsupported.isTranslated) {
    return { tools: openAiTools(body, unsupported, (tool, at) => readFunction(tool, at, unsupported)) }
  }
  const reader = new ToolReader(unsupported)
  reader.read(optionalList(body, 'tools') ?? [], 'tools')
  const { input } = body
  for (const [index, item] of (isJsonList(input) ? input : []).entries()) {
    if (!isJsonObject(item) || item['type'] !== additionalTools) continue
    const { tools } = item
    const at = `input[${index}].tools`
    if (!isJsonList(tools)) throw rejected(at, 'must be a list of tools')
    reader.read(tools, at)
  }
  return { tools: reader.names.functions, toolNames: reader.names }
}

interface Namespace {
  readonly name: string
  readonly description: string
}

class ToolReader {
  readonly names = new ToolNames()
  readonly #unsupported: Unsupported

  constructor(unsupported: Unsupported) {
    this.#unsupported = unsupported
  }

  read(tools: readonly Json[], place: string, namespace?: Namespace): void {
    for (const [tool, at] of typedObjects(tools, place)) {
      const { type } = tool
      if (type === 'function') {
        this.#declare('function', readFunction(tool, at, this.#unsupported), namespace)
      } else if (type === 'custom') {
        this.#declare('custom', readFreeform(tool, at, this.#unsupported), namespace)
      } else if (type === 'namespace' && namespace === undefined) {
        this.#readNamespace(tool, at)
      } else if (hostedTools.test(type)) {
        this.#unsupported.addHosted(`${at}.type ${type}`)
      } else {
        this.#unsupported.add(`${at}.type ${type}`)
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
    if (!isJsonList(tools)) throw rejected(`${at}.tools`, 'must be a list of tools')
    const description = optionalText(tool, 'description', `${at}.`) ?? ''
    this.read(tools, `${at}.tools`, { name, description })
  }
}

function readFunction(tool: TypedObject, at: string, unsupported: Unsupported): ToolDefinition {
  noteOtherFields(tool, at, functionFields, unsupported)
  return toolDefinition(tool, `${at}.`)
}

/** Reads a freeform tool as a function with one parameter. Nothing enforces its grammar there, so the model is told it. */
function readFreeform(tool: TypedObject, at: string, unsupported: Unsupported): ToolDefinition {
  noteOtherFields(tool, at, freeformFields, unsupported)
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

function noteOtherFields(tool: TypedObject, at: string, known: ReadonlySet<string>, unsupported: Unsupported): void {
  for (const key of Object.keys(tool)) {
    const value = tool[key]
    if (known.has(key) || isAbsent(value) || value === false) continue
    if (hints.has(key) || (key === 'allowed_callers' && isDirect(value))) unsupported.addDropped(`${at}.${key}`)
    else unsupported.add(`${at}.${key}`)
  }
}

/** Whether the model may call the tool itself, and not only programs that it writes. */
function isDirect(callers: Json | undefined): boolean {
  return isEmpty(callers) || (isJsonList(callers) && callers.includes('direct'))
}

export function readToolChoice(body: JsonObject, unsupported: Unsupported, names?: ToolNames): ToolChoice | undefined {
  const { tool_choice: choice } = body
  if (names && !isAbsent(choice) && typeof choice !== 'string') {
    const { type, ...named } = typedObject(choice, 'tool_choice')
    if (type === 'function' || type === 'custom') {
      const name = requiredText(named, 'name', 'tool_choice.')
      return { name: names.nameOf({ kind: type, name, namespace: optionalText(named, 'namespace', 'tool_choice.') }) }
    }
  }
  return openAiToolChoice(body, unsupported, (named) => requiredText(named, 'name', 'tool_choice.'))
}
