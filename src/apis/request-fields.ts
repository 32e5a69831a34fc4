import { MillraceError } from '../errors/index.ts'
import { parseExactly } from '../kit/index.ts'
import {
  type ApiName,
  type AssistantMessage,
  type ClientApi,
  type ContentPart,
  isJsonList,
  isJsonObject,
  type Json,
  type JsonObject,
  type OtherPart,
  type Sampling,
  type ToolCall,
  type ToolDefinition,
} from '../schema/index.ts'
import type { ResponseFormat, ToolChoice } from './backend.ts'
import { assistantMessage } from './reply-draft.ts'
import type { RequestDraft } from './server-side.ts'
import { hasInexactInput } from './tool-input.ts'

// Readers for the fields of a body, or of an object in it. The optional ones return undefined for a field that is absent or
// null; a value of another type is refused. `at` is the object's place in the body, with its dot (`text.format.`), for the
// message.

export type TypedObject = JsonObject & { readonly type: string }

export function typedObject(value: Json | undefined, at: string): TypedObject {
  if (isJsonObject(value) && typeof value['type'] === 'string') return value as TypedObject
  throw rejected(at, 'must be an object with a type')
}

/** The typed objects of a list, with their places in the body. */
export function* typedObjects(list: readonly Json[], at: string): Generator<[TypedObject, string]> {
  for (const [index, value] of list.entries()) yield [typedObject(value, `${at}[${index}]`), `${at}[${index}]`]
}

export function anyText(body: JsonObject, key: string, at: string): string {
  const value = body[key]
  if (typeof value !== 'string') throw rejected(at + key, 'must be a string')
  return value
}

export function requiredText(body: JsonObject, key: string, at = ''): string {
  const value = body[key]
  if (typeof value !== 'string' || value === '') throw rejected(at + key, 'must be a string that is not empty')
  return value
}

export function optionalText(body: JsonObject, key: string, at = ''): string | undefined {
  return optional(body, key, at, [(value) => typeof value === 'string', 'must be a string, or left out'])
}

export function optionalFlag(body: JsonObject, key: string, at = ''): boolean | undefined {
  return optional(body, key, at, [(value) => typeof value === 'boolean', 'must be true or false, or left out'])
}

/** The fields of the sampling that have the same names in all three APIs. */
export function readTemperature(body: JsonObject): Sampling {
  return definedFields({
    temperature: optional(body, 'temperature', '', [isFromZero, 'must be a number from 0 on']),
    topP: optional(body, 'top_p', '', [isFraction, 'must be a number from 0 to 1']),
  })
}

export function optionalCount(body: JsonObject, key: string): number | undefined {
  return optional(body, key, '', [isCount, 'must be a whole number from 1 on, or left out'])
}

export function requiredCount(body: JsonObject, key: string, missing: string): number {
  const count = optional(body, key, '', [isCount, 'must be a whole number from 1 on'])
  if (count === undefined) throw rejected(key, missing)
  return count
}

/** It may be larger than a double holds exactly, as a seed may: the client's bytes are sent. */
export function optionalInteger(body: JsonObject, key: string, at = ''): number | undefined {
  return optional(body, key, at, [isComplete, 'must be a whole number, or left out'])
}

export function optionalObject(body: JsonObject, key: string, at = ''): JsonObject | undefined {
  return optional(body, key, at, [isJsonObject, 'must be an object, or left out'])
}

export function optionalList(body: JsonObject, key: string): readonly Json[] | undefined {
  return optional(body, key, '', [isJsonList, 'must be a list, or left out'])
}

type Check<Value extends Json> = readonly [is: (value: Json) => value is Value, must: string]

function optional<Value extends Json>(
  body: JsonObject,
  key: string,
  at: string,
  [is, must]: Check<Value>,
): Value | undefined {
  const value = body[key]
  if (isAbsent(value)) return undefined
  if (is(value)) return value
  throw rejected(at + key, must)
}

export function definedFields<Fields extends object>(fields: Fields): Given<Fields> {
  const defined: Partial<Fields> = {}
  for (const name in fields) if (fields[name] !== undefined) defined[name] = fields[name]
  return defined as Given<Fields>
}

type Given<Fields> = { [Name in keyof Fields]?: Exclude<Fields[Name], undefined> }

/** Stop sequences: a list, or a single one. */
export function optionalTexts(body: JsonObject, key: string): string[] | undefined {
  const value = body[key]
  if (isAbsent(value)) return undefined
  if (typeof value === 'string') return [value]
  if (isJsonList(value)) {
    const texts = value.filter((text) => typeof text === 'string')
    if (texts.length === value.length) return texts
  }
  throw rejected(key, 'must be a list of strings, or left out')
}

/** The fields that no API knows, which go to the backend as they came; undefined if there are none. */
export function unknownFields(body: JsonObject, known: ReadonlySet<string>): JsonObject | undefined {
  const unknown = Object.entries(body).filter(([key]) => !known.has(key))
  return unknown.length > 0 ? Object.fromEntries(unknown) : undefined
}

function isComplete(value: Json): value is number {
  return Number.isInteger(value)
}

function isCount(value: Json): value is number {
  return Number.isSafeInteger(value) && Number(value) >= 1
}

function isFraction(value: Json): value is number {
  return isFromZero(value) && value <= 1
}

/** JSON can express numbers that are not finite: `1e309`. */
function isFromZero(value: Json): value is number {
  return typeof value === 'number' && value >= 0 && Number.isFinite(value)
}

/** The error for an invalid request: `param` is the place in the body, and `must` completes the sentence. */
export function rejected(param: string, must: string): MillraceError {
  return new MillraceError('model_rejected', `${param} ${must}`, { data: { status: 400, param } })
}

/** Whether a field is missing. Clients also write null for fields that they leave out. */
export function isAbsent(value: Json | undefined): value is null | undefined {
  return value === null || value === undefined
}

export function isEmpty(value: Json | undefined): boolean {
  return isAbsent(value) || (isJsonList(value) && value.length === 0)
}

/** Reads the functions among the `tools` of OpenAI's APIs, which differ only in where they describe a function. */
export function openAiTools(
  body: JsonObject,
  unsupported: Unsupported,
  readFunction: (tool: TypedObject, at: string) => ToolDefinition,
): ToolDefinition[] {
  const tools: ToolDefinition[] = []
  for (const [tool, at] of typedObjects(optionalList(body, 'tools') ?? [], 'tools')) {
    if (tool.type === 'function') tools.push(readFunction(tool, at))
    else unsupported.add(`${at}.type ${tool.type}`)
  }
  return tools
}

/** Reads `tool_choice` of OpenAI's APIs, which differ only in where they name the function. */
export function openAiToolChoice(
  { tool_choice: choice }: JsonObject,
  unsupported: Unsupported,
  nameIn: (named: TypedObject) => string,
): ToolChoice | undefined {
  if (isAbsent(choice)) return undefined
  if (choice === 'auto' || choice === 'none' || choice === 'required') return choice
  if (typeof choice === 'string')
    throw rejected('tool_choice', 'must be "auto", "none", "required" or a named function')
  const named = typedObject(choice, 'tool_choice')
  if (named.type === 'function') return { name: nameIn(named) }
  unsupported.add(`tool_choice.type ${named.type}`)
  return undefined
}

const noParameters: JsonObject = { type: 'object', properties: {} }

/** Reads a function in one form and order of fields: the same tool has the same JSON whichever API it came in. */
export function toolDefinition(fields: JsonObject, at: string, schema?: JsonObject): ToolDefinition {
  return {
    type: 'function',
    function: {
      name: requiredText(fields, 'name', at),
      ...definedFields({ description: optionalText(fields, 'description', at) }),
      parameters: schema ?? optionalObject(fields, 'parameters', at) ?? noParameters,
      ...definedFields({ strict: optionalFlag(fields, 'strict', at) }),
    },
  }
}

/** Reads a format of OpenAI's APIs, which differ only in where they put its schema. Without one, any JSON will do. */
export function openAiFormat(
  value: Json | undefined,
  at: string,
  unsupported: Unsupported,
  schemaOf: (format: TypedObject) => { readonly fields: JsonObject; readonly at: string },
): ResponseFormat | undefined {
  if (isAbsent(value)) return undefined
  const format = typedObject(value, at)
  if (format.type === 'text') return undefined
  if (format.type === 'json_object') return { kind: 'json_object' }
  if (format.type !== 'json_schema') {
    unsupported.add(`${at}.type ${format.type}`)
    return undefined
  }
  const { fields, at: place } = schemaOf(format)
  return {
    kind: 'json_schema',
    name: requiredText(fields, 'name', place),
    ...definedFields({ description: optionalText(fields, 'description', place) }),
    schema: optionalObject(fields, 'schema', place) ?? {},
    ...definedFields({ strict: optionalFlag(fields, 'strict', place) }),
  }
}

/** The most names of a list: a few are enough to refuse a request with, and there are few kinds of what is left out. */
const maxNames = 16

/** The length at which a name is cut: part of it may be the client's own text. */
const maxNameChars = 120

const listIndex = /\[\d+\]/g

/**
 * Collects the names of parts and fields that only the client's API knows. If the request is translated (`isTranslated`),
 * fields whose absence does not change what the model is asked are left out of it; otherwise all names are equal.
 */
export class Unsupported {
  readonly isTranslated: boolean
  readonly names: string[] = []
  /** The names among them that stand for a part of the conversation which only the provider has. */
  readonly providerContent: string[] = []
  /** The names that are left out, each kind once: of `tools[0].async` and `tools[1].async` there is `tools[].async`. */
  readonly dropped: string[] = []
  readonly hosted: string[] = []

  constructor(api: ApiName, backendApi: ApiName | 'ids' = api) {
    this.isTranslated = backendApi !== api
  }

  add(name: string): void {
    addTo(this.names, name)
  }

  addProviderContent(name: string): void {
    this.add(name)
    addTo(this.providerContent, name)
  }

  /** Adds a setting of what only the client's provider does, or one that has no effect. */
  addDropped(name: string): void {
    this.#addKind(this.dropped, name)
  }

  /** Adds the fields among `labels` that the body has. Labels are about the request, and never keep it from translation. */
  addLabels(body: JsonObject, labels: readonly string[]): void {
    if (!this.isTranslated) return
    for (const label of labels) if (!isEmpty(body[label])) addTo(this.dropped, label)
  }

  addHosted(name: string): void {
    this.#addKind(this.hosted, name)
  }

  #addKind(kinds: string[], name: string): void {
    if (this.isTranslated) addTo(kinds, name.replaceAll(listIndex, '[]'))
    else this.add(name)
  }

  /**
   * Sets the lists of a request, after it was read. A choice that forces a call is refused if no tool that is left can be
   * called for it: the model would be free to answer, or be forced to call what does not exist.
   */
  listIn(request: RequestDraft): void {
    if (this.isTranslated && isUnmeetable(request)) this.add('tool_choice without a tool that can be called')
    if (this.providerContent.length > 0) request.providerContent = this.providerContent
    if (this.dropped.length > 0) request.dropped = this.dropped
    if (this.hosted.length > 0) request.hosted = this.hosted
  }
}

function isUnmeetable({ tools, toolChoice }: RequestDraft): boolean {
  if (toolChoice === undefined || toolChoice === 'auto' || toolChoice === 'none') return false
  return !tools.some(({ function: { name } }) => toolChoice === 'required' || name === toolChoice.name)
}

function addTo(names: string[], name: string): void {
  const cut = name.slice(0, maxNameChars)
  if (names.length < maxNames && !names.includes(cut)) names.push(cut)
}

/**
 * An assistant's turn while it is read from a client's history. It must become the very message that was once replied,
 * whichever API carried it there and back, so each meaning has one form and one order of fields.
 */
export class AssistantDraft {
  text = ''
  reasoning = ''
  refusal = ''
  readonly calls: ToolCall[] = []
  readonly #others: OtherPart[] = []

  addCall(id: string, name: string, written: string): void {
    this.calls.push({ id, type: 'function', function: { name, arguments: written } })
  }

  addOther(api: ApiName, value: Json): void {
    this.#others.push({ type: 'other', api, value })
  }

  message(): AssistantMessage {
    const { text, reasoning, refusal, calls } = this
    const others = this.#others
    // Servers refuse a turn with neither text nor anything else.
    const hasOthers = calls.length + others.length > 0 || refusal !== ''
    const content = text === '' && hasOthers ? null : text
    return assistantMessage({ content, reasoning, refusal, calls, others })
  }
}

/** A single text is a string, however it was sent. Several texts stay separate: servers differ in how they join them. */
export function contentOf(parts: readonly ContentPart[]): string | readonly ContentPart[] {
  const [first] = parts
  if (first === undefined) return ''
  return parts.length === 1 && first.type === 'text' ? first.text : parts
}

/** A part with an image. `auto` means the same as no detail. Undefined if the detail is unknown. */
export function imagePart(url: string, detail?: string): ContentPart | undefined {
  if (detail === undefined || detail === 'auto') return { type: 'image_url', image_url: { url } }
  if (detail === 'low' || detail === 'high') return { type: 'image_url', image_url: { url, detail } }
  return undefined
}

/**
 * Parses a client's body. Messages has the arguments of calls as objects, but they are recorded and sent on as text, so
 * numbers in them that a double cannot hold are kept as they were written. Throws what `JSON.parse` throws.
 */
export function parseBody(api: ClientApi, text: string): Json {
  const body = JSON.parse(text) as Json
  if (api !== 'messages' || !isJsonObject(body) || !isJsonList(body['messages'])) return body
  const isExact = body['messages'].some((turn) => isJsonObject(turn) && hasInexactInput(turn['content']))
  const exact = isExact ? parseExactly(text) : undefined
  return isJsonObject(exact) ? { ...body, messages: exact['messages'] } : body
}
