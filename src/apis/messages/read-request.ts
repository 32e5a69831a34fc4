import { MillraceError } from '../../errors/index.ts'
import type { ResponseFormat, ToolChoice } from '../backend.ts'
import {
  type ContentPart,
  isJsonList,
  isJsonObject,
  type Json,
  type JsonObject,
  type Message,
  type Sampling,
  type ToolDefinition,
} from '../../schema/index.ts'
import {
  anyText,
  AssistantDraft,
  contentOf,
  definedFields,
  imagePart,
  isAbsent,
  isEmpty,
  optionalFlag,
  optionalInteger,
  optionalList,
  optionalObject,
  optionalText,
  optionalTexts,
  readTemperature,
  rejected,
  requiredCount,
  requiredText,
  toolDefinition,
  typedObject,
  type TypedObject,
  typedObjects,
  unknownFields,
  Unsupported,
} from '../request-fields.ts'
import type { DialectRequest, RequestDraft, ReadContext } from '../server-side.ts'
import { writtenArguments } from '../tool-input.ts'

const ownFields = ['container', 'compaction'] as const

/** Labels, and settings of what only Anthropic's server does. A model elsewhere is asked the same without them. */
const ownLabels = [
  'cache_control',
  'thread',
  'speed',
  'inference_geo',
  'diagnostics',
  'fallbacks',
  'fallback_credit_token',
  'user_profile_id',
  'workspace_id',
] as const

const knownFields: ReadonlySet<string> = new Set([
  ...ownFields,
  ...ownLabels,
  'mcp_servers',
  'context_management',
  'model',
  'messages',
  'system',
  'max_tokens',
  'stop_sequences',
  'temperature',
  'top_p',
  'stream',
  'tools',
  'tool_choice',
  'thinking',
  'output_config',
  'output_format',
  'metadata',
  'service_tier',
])

const serviceTiers: ReadonlyMap<string, string> = new Map([
  ['auto', 'auto'],
  ['standard_only', 'default'],
])

const lowBudget = 2048
const mediumBudget = 8192

export function readMessagesRequest(body: JsonObject, before?: ReadContext): DialectRequest {
  refuseThread(body)
  const unsupported = new Unsupported('messages', before?.backendApi)
  const request: RequestDraft = {
    model: requiredText(body, 'model'),
    messages: readMessagesInput(body, unsupported),
    tools: readMessagesTools(body, unsupported),
    sampling: readSampling(body, unsupported),
    stream: optionalFlag(body, 'stream') ?? false,
    includeUsage: true,
    wantsTokenIds: false,
    wantsLogprobs: false,
    unsupported: unsupported.names,
    body,
    ...readMessagesChoice(body, unsupported),
    ...definedFields({ responseFormat: readMessagesFormat(body, unsupported) }),
  }
  for (const field of ownFields) if (!isEmpty(body[field])) unsupported.add(field)
  unsupported.addLabels(body, ownLabels)
  if (!isEmpty(body['mcp_servers'])) unsupported.addHosted('mcp_servers')
  noteEdits(body, unsupported)
  unsupported.listIn(request)
  return request
}

/** Notes edits of the conversation that the server would make. Those of thinking are left to the model's chat template. */
function noteEdits(body: JsonObject, unsupported: Unsupported): void {
  const management = optionalObject(body, 'context_management')
  if (!management) return
  const { edits, ...others } = management
  for (const key of Object.keys(others)) if (!isEmpty(others[key])) unsupported.add(`context_management.${key}`)
  if (!isAbsent(edits) && !isJsonList(edits)) throw rejected('context_management.edits', 'must be a list, or left out')
  for (const [{ type }, at] of typedObjects(edits ?? [], 'context_management.edits')) {
    if (type.startsWith('clear_thinking_')) unsupported.addDropped(`${at}.type ${type}`)
    else unsupported.add(`${at}.type ${type}`)
  }
}

/** Reads a request to count tokens. There is no reply, so `max_tokens` may be missing and is ignored. */
export function readCountedMessages(body: JsonObject, before?: ReadContext): DialectRequest {
  return { ...readMessagesRequest({ ...body, max_tokens: 1 }, before), stream: false, body }
}

/**
 * Refuses to continue a thread: a conversation, with its tools, that the server holds, so that a client sends only what is
 * new. No threads are held here. Creating one does no harm; continuing one is answered as by a server that has lost it, and
 * clients then send everything again.
 */
function refuseThread(body: JsonObject): void {
  const value = body['thread']
  if (isAbsent(value) || typedObject(value, 'thread').type === 'create') return
  throw new MillraceError('model_rejected', 'threads are not supported: send the whole conversation, with its tools', {
    data: { status: 404, param: 'thread', saidCode: 'thread_not_found' },
  })
}

function readSampling(body: JsonObject, unsupported: Unsupported): Sampling {
  const maxTokens = requiredCount(body, 'max_tokens', 'is missing: set the maximum number of tokens of the reply')
  const thinking = readThinking(body, unsupported)
  const config = optionalObject(body, 'output_config')
  return {
    maxTokens,
    ...readTemperature(body),
    ...definedFields({
      stop: optionalTexts(body, 'stop_sequences'),
      reasoningEffort: (config && optionalText(config, 'effort', 'output_config.')) ?? thinking.effort,
      extra: readExtra(body, thinking.isOff),
    }),
  }
}

/** Reads how much the model may think. A budget is mapped to an effort; without one (`adaptive`) the model decides. */
function readThinking(body: JsonObject, unsupported: Unsupported): { isOff: boolean; effort?: string } {
  const value = body['thinking']
  if (isAbsent(value)) return { isOff: false }
  const thinking = typedObject(value, 'thinking')
  if (thinking.type === 'disabled') return { isOff: true }
  const budget = optionalInteger(thinking, 'budget_tokens', 'thinking.')
  if (budget !== undefined) {
    return { isOff: false, effort: budget <= lowBudget ? 'low' : budget <= mediumBudget ? 'medium' : 'high' }
  }
  if (thinking.type === 'enabled') {
    throw rejected('thinking.budget_tokens', 'is missing: set the maximum number of tokens for thinking')
  }
  if (thinking.type !== 'adaptive') unsupported.add(`thinking.type ${thinking.type}`)
  return { isOff: false }
}

/** The unknown fields, such as `top_k`, and the fields that other backends know under another name. */
function readExtra(body: JsonObject, isThinkingOff: boolean): JsonObject | undefined {
  const unknown = unknownFields(body, knownFields)
  const metadata = optionalObject(body, 'metadata')
  const user = metadata && optionalText(metadata, 'user_id', 'metadata.')
  const tier = serviceTiers.get(optionalText(body, 'service_tier') ?? '')
  if (user === undefined && tier === undefined && !isThinkingOff) return unknown
  const template = unknown?.['chat_template_kwargs']
  return {
    ...definedFields({ user, service_tier: tier }),
    ...unknown,
    // This is how vLLM and SGLang turn thinking off; the client's own settings of the template win.
    ...(isThinkingOff && {
      chat_template_kwargs: { enable_thinking: false, ...(isJsonObject(template) && template) },
    }),
  }
}

function readMessagesInput(body: JsonObject, unsupported: Unsupported): Message[] {
  const messages: Message[] = []
  const system = body['system']
  if (!isAbsent(system)) {
    const content = readContent(withoutLabel(system, unsupported), 'system', unsupported)
    if (content !== '') messages.push({ role: 'system', content })
  }
  const turns = body['messages']
  if (!isJsonList(turns) || turns.length === 0) throw rejected('messages', 'must be a list of at least one message')
  for (const [index, turn] of turns.entries()) readTurn(messages, turn, `messages[${index}]`, unsupported)
  // A reply would have to continue this turn, but other APIs begin a new one.
  if (messages.at(-1)?.role === 'assistant') unsupported.add(`messages[${turns.length - 1}] a prefilled reply`)
  return messages
}

/** How the first text of Claude Code's system prompt begins: a label for Anthropic, which changes from version to version. */
const labelPrefix = 'x-anthropic-billing-header:'

/** The system prompt without that label, which is not meant for the model, if the request is translated. */
function withoutLabel(system: Json, unsupported: Unsupported): Json {
  if (!unsupported.isTranslated || !isJsonList(system)) return system
  const [first] = system
  const text = isJsonObject(first) ? first['text'] : undefined
  if (typeof text !== 'string' || !text.startsWith(labelPrefix)) return system
  unsupported.addDropped('system[0] x-anthropic-billing-header')
  return system.slice(1)
}

function readTurn(messages: Message[], turn: Json, at: string, unsupported: Unsupported): void {
  if (!isJsonObject(turn)) throw rejected(at, 'must be an object with a role and content')
  const content = turn['content']
  const role = requiredText(turn, 'role', `${at}.`)
  const place = `${at}.content`
  if (role === 'user') readUser(messages, content, place, unsupported)
  else if (role === 'assistant') messages.push(readAssistant(content, place, unsupported))
  else if (role === 'system') messages.push({ role, content: readContent(content, place, unsupported) })
  else throw rejected(`${at}.role`, 'must be "user" or "assistant"')
}

/** Reads a user's turn. Tool results are blocks of that turn here, but messages of their own elsewhere: they come first. */
function readUser(messages: Message[], content: Json | undefined, at: string, unsupported: Unsupported): void {
  if (!isJsonList(content)) {
    messages.push({ role: 'user', content: readContent(content, at, unsupported) })
    return
  }
  const parts: ContentPart[] = []
  for (const [block, place] of typedObjects(content, at)) {
    if (block.type === 'tool_result') messages.push(readToolResult(block, place, unsupported))
    else parts.push(readBlock(block, place, unsupported))
  }
  if (parts.length > 0 || content.length === 0) messages.push({ role: 'user', content: contentOf(parts) })
}

function readToolResult(block: TypedObject, at: string, unsupported: Unsupported): Message {
  const id = requiredText(block, 'tool_use_id', `${at}.`)
  const result = block['content']
  const content = isAbsent(result) ? '' : readContent(result, `${at}.content`, unsupported)
  return { role: 'tool', tool_call_id: id, content, ...(block['is_error'] === true && { is_error: true }) }
}

function readAssistant(content: Json | undefined, at: string, unsupported: Unsupported): Message {
  const draft = new AssistantDraft()
  if (typeof content === 'string') draft.text = content
  else if (isJsonList(content)) {
    for (const [block, place] of typedObjects(content, at)) readSpoken(draft, block, place, unsupported)
  } else throw rejected(at, 'must be a string or a list of blocks')
  return draft.message()
}

/** A turn is kept as thought, text and calls, in the order in which they are sampled. */
function readSpoken(draft: AssistantDraft, block: TypedObject, at: string, unsupported: Unsupported): void {
  const { type, input } = block
  if (type === 'text') draft.text += anyText(block, 'text', `${at}.`)
  else if (type === 'thinking') draft.reasoning += anyText(block, 'thinking', `${at}.`)
  else if (type === 'tool_use') {
    if (!isJsonObject(input)) throw rejected(`${at}.input`, 'must be an object')
    draft.addCall(requiredText(block, 'id', `${at}.`), requiredText(block, 'name', `${at}.`), writtenArguments(input))
  } else {
    unsupported.add(`${at}.type ${type}`)
    draft.addOther('messages', withoutCaching(block))
  }
}

function readContent(content: Json | undefined, at: string, unsupported: Unsupported): string | readonly ContentPart[] {
  if (typeof content === 'string') return content
  if (!isJsonList(content)) throw rejected(at, 'must be a string or a list of blocks')
  return contentOf(Array.from(typedObjects(content, at), (block) => readBlock(...block, unsupported)))
}

const caching = ['cache_control'] as const

/** Reads one block of what the model is given. Marks for caching are left out: prefixes are cached anyway. */
function readBlock(block: TypedObject, at: string, unsupported: Unsupported): ContentPart {
  unsupported.addLabels(block, caching)
  if (block.type === 'text') return { type: 'text', text: anyText(block, 'text', `${at}.`) }
  // Tools that are declared late are declared all the same, so their names are enough to tell that they can be called.
  if (block.type === 'tool_reference' && unsupported.isTranslated) {
    return { type: 'text', text: `Tool loaded: ${requiredText(block, 'tool_name', `${at}.`)}` }
  }
  const image = block.type === 'image' ? readImage(block, at) : undefined
  if (image) return image
  unsupported.add(`${at}.type ${block.type}`)
  return { type: 'other', api: 'messages', value: withoutCaching(block) }
}

/** The block without its mark for caching. Clients move these marks from turn to turn, and a repeated block must stay equal. */
function withoutCaching({ cache_control: _left, ...block }: TypedObject): JsonObject {
  return block
}

function readImage(block: TypedObject, at: string): ContentPart | undefined {
  const source = typedObject(block['source'], `${at}.source`)
  const place = `${at}.source.`
  if (source.type === 'url') return imagePart(requiredText(source, 'url', place))
  if (source.type !== 'base64') return undefined
  const mediaType = requiredText(source, 'media_type', place)
  return imagePart(`data:${mediaType};base64,${requiredText(source, 'data', place)}`)
}

/** Tools that Anthropic runs by itself; the names of most have a date at the end. */
const hostedTools = /^(web_search|web_fetch|code_execution|tool_search_tool\w*?|mcp_toolset|advisor)(_\d{8})?$/

/** Reads the tools that the client runs itself. Only Anthropic's server knows the others. */
function readMessagesTools(body: JsonObject, unsupported: Unsupported): ToolDefinition[] {
  const tools: ToolDefinition[] = []
  for (const [index, tool] of (optionalList(body, 'tools') ?? []).entries()) {
    const at = `tools[${index}]`
    if (!isJsonObject(tool)) throw rejected(at, 'must be an object')
    const type = optionalText(tool, 'type', `${at}.`) ?? 'custom'
    if (type === 'custom') tools.push(readTool(tool, at, unsupported))
    else if (hostedTools.test(type)) unsupported.addHosted(`${at}.type ${type}`)
    else unsupported.add(`${at}.type ${type}`)
  }
  return tools
}

function readTool(tool: JsonObject, at: string, unsupported: Unsupported): ToolDefinition {
  const place = `${at}.`
  const parameters = optionalObject(tool, 'input_schema', place)
  if (!parameters) throw rejected(`${at}.input_schema`, 'is missing: describe the input as a JSON Schema')
  // Without the search that would load it later, a tool is loaded from the start.
  if (tool['defer_loading'] === true) unsupported.addDropped(`${at}.defer_loading`)
  // These fields change what the model sees of a tool, or who may call it. Hints about caching and streaming do not.
  if (!isEmpty(tool['input_examples'])) unsupported.add(`${at}.input_examples`)
  const callers = tool['allowed_callers']
  if (!isEmpty(callers) && !(isJsonList(callers) && callers.every((caller) => caller === 'direct'))) {
    unsupported.add(`${at}.allowed_callers`)
  }
  return toolDefinition(tool, place, parameters)
}

/** Reads which tool to call, and whether several may be called at once: both are in `tool_choice` here. */
function readMessagesChoice(
  body: JsonObject,
  unsupported: Unsupported,
): Pick<DialectRequest, 'toolChoice' | 'parallelToolCalls'> {
  const value = body['tool_choice']
  if (isAbsent(value)) return {}
  const choice = typedObject(value, 'tool_choice')
  const isSingle = optionalFlag(choice, 'disable_parallel_tool_use', 'tool_choice.')
  return definedFields({
    toolChoice: chosenTool(choice, unsupported),
    parallelToolCalls: isSingle === undefined ? undefined : !isSingle,
  })
}

function chosenTool(choice: TypedObject, unsupported: Unsupported): ToolChoice | undefined {
  if (choice.type === 'auto' || choice.type === 'none') return choice.type
  if (choice.type === 'any') return 'required'
  if (choice.type === 'tool') return { name: requiredText(choice, 'name', 'tool_choice.') }
  unsupported.add(`tool_choice.type ${choice.type}`)
  return undefined
}

function readMessagesFormat(body: JsonObject, unsupported: Unsupported): ResponseFormat | undefined {
  const config = optionalObject(body, 'output_config') ?? {}
  for (const key of Object.keys(config)) {
    if (key !== 'format' && key !== 'effort' && !isAbsent(config[key])) unsupported.add(`output_config.${key}`)
  }
  const value = config['format'] ?? body['output_format']
  if (isAbsent(value)) return undefined
  const at = isAbsent(config['format']) ? 'output_format' : 'output_config.format'
  const format = typedObject(value, at)
  if (format.type !== 'json_schema') {
    unsupported.add(`${at}.type ${format.type}`)
    return undefined
  }
  const schema = optionalObject(format, 'schema', `${at}.`)
  if (!schema) throw rejected(`${at}.schema`, 'is missing: describe the reply as a JSON Schema')
  // In this API a schema has no name, and is always followed strictly.
  return { kind: 'json_schema', name: 'output', schema, strict: true }
}
