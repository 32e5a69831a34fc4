import type { ResponseFormat, ToolChoice } from '../backend.ts'
import {
  type AssistantMessage,
  type ContentPart,
  isJsonList,
  isJsonObject,
  type Json,
  type JsonObject,
  type Message,
  type Sampling,
  type ToolDefinition,
  type ToolMessage,
} from '../../schema/index.ts'
import { isSynthetic, SyntheticIds } from '../reply-draft.ts'
import {
  anyText,
  AssistantDraft,
  contentOf,
  definedFields,
  imagePart,
  isAbsent,
  isEmpty,
  openAiFormat,
  openAiToolChoice,
  openAiTools,
  optionalCount,
  optionalFlag,
  optionalInteger,
  optionalObject,
  optionalText,
  optionalTexts,
  readTemperature,
  rejected,
  requiredText,
  toolDefinition,
  type TypedObject,
  typedObjects,
  unknownFields,
  Unsupported,
} from '../request-fields.ts'
import type { DialectRequest, RequestDraft, ReadContext } from '../server-side.ts'
import { reasoningIn } from './read-reply.ts'

/** Fields that, unless they are empty, have a meaning in this API alone. */
const ownFields = ['audio', 'functions', 'function_call'] as const

/** The most choices of one request, as OpenAI has it. */
export const maxChoices = 128

const knownFields: ReadonlySet<string> = new Set([
  ...ownFields,
  'prediction',
  'web_search_options',
  'model',
  'messages',
  'tools',
  'tool_choice',
  'response_format',
  'parallel_tool_calls',
  'temperature',
  'top_p',
  'max_tokens',
  'max_completion_tokens',
  'stop',
  'seed',
  'reasoning_effort',
  'n',
  'stream',
  'stream_options',
  'logprobs',
  'top_logprobs',
  'return_token_ids',
  'modalities',
  'store',
])

export function readChatRequest(body: JsonObject, before?: ReadContext): DialectRequest {
  const unsupported = new Unsupported('chat', before?.backendApi)
  const choices = optionalInteger(body, 'n') ?? 1
  if (choices < 1 || choices > maxChoices) throw rejected('n', `must be a whole number from 1 to ${maxChoices}`)
  const options = optionalObject(body, 'stream_options')
  const request: RequestDraft = {
    model: requiredText(body, 'model'),
    messages: readChatMessages(body['messages'], unsupported, before?.messages ?? []),
    tools: readChatTools(body, unsupported),
    sampling: readSampling(body),
    stream: optionalFlag(body, 'stream') ?? false,
    includeUsage: (options && optionalFlag(options, 'include_usage', 'stream_options.')) ?? false,
    wantsTokenIds: optionalFlag(body, 'return_token_ids') ?? false,
    wantsLogprobs: optionalFlag(body, 'logprobs') ?? false,
    unsupported: unsupported.names,
    body,
    ...definedFields({
      choices: choices > 1 ? choices : undefined,
      toolChoice: readChatToolChoice(body, unsupported),
      responseFormat: readChatFormat(body, unsupported),
      parallelToolCalls: optionalFlag(body, 'parallel_tool_calls'),
    }),
  }
  noteOwnFields(body, request.wantsLogprobs, unsupported)
  unsupported.listIn(request)
  return request
}

function readSampling(body: JsonObject): Sampling {
  return {
    ...readTemperature(body),
    ...definedFields({
      // `max_completion_tokens` is the newer name of `max_tokens`.
      maxTokens: tokenLimit(body, 'max_completion_tokens') ?? tokenLimit(body, 'max_tokens'),
      stop: optionalTexts(body, 'stop'),
      seed: optionalInteger(body, 'seed'),
      reasoningEffort: optionalText(body, 'reasoning_effort'),
      extra: unknownFields(body, knownFields),
    }),
  }
}

/** The token limit. For clients of llama.cpp and LM Studio, -1 means no limit. */
function tokenLimit(body: JsonObject, key: string): number | undefined {
  return body[key] === -1 ? undefined : optionalCount(body, key)
}

function noteOwnFields(body: JsonObject, wantsLogprobs: boolean, unsupported: Unsupported): void {
  for (const field of ownFields) if (!isEmpty(body[field])) unsupported.add(field)
  if (!isEmpty(body['web_search_options'])) unsupported.addHosted('web_search_options')
  // A guess at the reply, which only makes it faster.
  if (!isEmpty(body['prediction'])) unsupported.addDropped('prediction')
  if (optionalFlag(body, 'store') === true) unsupported.addDropped('store')
  if (wantsLogprobs) unsupported.add('logprobs')
  const alternatives = optionalInteger(body, 'top_logprobs') ?? 0
  if (alternatives > 0) unsupported.add('top_logprobs')
  const modalities = body['modalities']
  // Every API speaks text.
  if (isJsonList(modalities) && modalities.every((name) => name === 'text')) return
  if (!isAbsent(modalities)) unsupported.add('modalities')
}

interface Reading {
  readonly before: readonly Message[]
  readonly syntheticIds: SyntheticIds
  readonly unsupported: Unsupported
}

/** Reads the messages after those that were read before. Fields that a client adds to our shape are left out. */
function readChatMessages(value: Json | undefined, unsupported: Unsupported, before: readonly Message[]): Message[] {
  if (!isJsonList(value) || before.length + value.length === 0) {
    throw rejected('messages', 'must be a list of at least one message')
  }
  const messages = [...before]
  const reading = { before: messages, syntheticIds: new SyntheticIds(messages), unsupported }
  for (const message of value) messages.push(readMessage(message, reading))
  return messages
}

function readMessage(value: Json, reading: Reading): Message {
  const { before, unsupported } = reading
  const at = `messages[${before.length}]`
  if (!isJsonObject(value)) throw rejected(at, 'must be an object with a role and content')
  const role = requiredText(value, 'role', `${at}.`)
  if (role === 'tool') return readTool(value, before, unsupported)
  const name = optionalText(value, 'name', `${at}.`)
  // Only for users do other APIs have a name too.
  if (name !== undefined && role !== 'user') unsupported.add(`${at}.name`)
  switch (role) {
    case 'system':
    case 'developer':
    case 'user':
      return { role, content: readContent(value['content'], at, unsupported), ...definedFields({ name }) }
    case 'assistant':
      return { ...readAssistant(value, at, reading), ...definedFields({ name }) }
    case 'function':
      throw rejected(`${at}.role`, 'is "function", which tools replaced: send role "tool" with a tool_call_id')
    default:
      throw rejected(`${at}.role`, 'must be "system", "developer", "user", "assistant" or "tool"')
  }
}

function readTool(value: JsonObject, before: readonly Message[], unsupported: Unsupported): ToolMessage {
  const at = `messages[${before.length}]`
  const id = answeredId(value, before) ?? requiredText(value, 'tool_call_id', `${at}.`)
  const content = readContent(value['content'], at, unsupported)
  // `is_error` is not part of this API, but a failed tool of another API is written with it.
  return { role: 'tool', tool_call_id: id, content, ...(value['is_error'] === true && { is_error: true }) }
}

/** The id of the call that a result without one answers: calls without ids are answered in their order. */
function answeredId({ tool_call_id: id }: JsonObject, before: readonly Message[]): string | undefined {
  if (id !== '' && !isAbsent(id)) return undefined
  const asked = before.findLastIndex(({ role }) => role !== 'tool')
  const message = before[asked]
  const call = message?.role === 'assistant' ? message.tool_calls?.[before.length - asked - 1] : undefined
  return call && isSynthetic(call.id) ? call.id : undefined
}

function readAssistant(value: JsonObject, at: string, reading: Reading): AssistantMessage {
  const { unsupported } = reading
  const draft = new AssistantDraft()
  readSpoken(draft, value['content'], at, unsupported)
  // Servers have two names for this field, and clients send back the one they got.
  draft.reasoning =
    optionalText(value, 'reasoning_content', `${at}.`) || optionalText(value, 'reasoning', `${at}.`) || draft.reasoning
  draft.refusal += optionalText(value, 'refusal', `${at}.`) ?? ''
  if (!isAbsent(value['function_call'])) {
    throw rejected(`${at}.function_call`, 'was replaced by tool_calls: send the call as one of these')
  }
  const { tool_calls: calls, audio } = value
  if (!isAbsent(calls) && !isJsonList(calls)) throw rejected(`${at}.tool_calls`, 'must be a list, or left out')
  for (const [index, call] of (calls ?? []).entries()) {
    readToolCall(draft, call, `${at}.tool_calls[${index}]`, reading)
  }
  if (!isAbsent(audio)) {
    unsupported.add(`${at}.audio`)
    draft.addOther('chat', { audio })
  }
  return draft.message()
}

function readToolCall(draft: AssistantDraft, call: Json, at: string, reading: Reading): void {
  if (!isJsonObject(call)) throw rejected(at, 'must be an object')
  const type = optionalText(call, 'type', `${at}.`) ?? 'function'
  if (type !== 'function') {
    reading.unsupported.add(`${at}.type ${type}`)
    draft.addOther('chat', call)
    return
  }
  const called = call['function']
  if (!isJsonObject(called)) throw rejected(`${at}.function`, 'must be an object with name and arguments')
  const written = called['arguments'] ?? ''
  if (typeof written !== 'string') {
    throw rejected(`${at}.function.arguments`, 'must be a string: the JSON text as the model wrote it')
  }
  // Not every server gives calls an id, and clients send back what they got.
  const id = optionalText(call, 'id', `${at}.`) || reading.syntheticIds.at(draft.calls.length)
  draft.addCall(id, requiredText(called, 'name', `${at}.function.`), written)
}

function readSpoken(draft: AssistantDraft, content: Json | undefined, at: string, unsupported: Unsupported): void {
  if (isAbsent(content)) return
  if (typeof content === 'string') {
    draft.text = content
    return
  }
  if (!isJsonList(content)) throw rejected(`${at}.content`, 'must be a string, a list of parts or null')
  for (const [part, place] of typedObjects(content, `${at}.content`)) {
    const thought = reasoningIn(part)
    if (thought !== undefined) draft.reasoning += thought
    else if (part.type === 'text') draft.text += anyText(part, 'text', `${place}.`)
    else if (part.type === 'refusal') draft.refusal += anyText(part, 'refusal', `${place}.`)
    else {
      unsupported.add(`${place}.type ${part.type}`)
      draft.addOther('chat', part)
    }
  }
}

function readContent(content: Json | undefined, at: string, unsupported: Unsupported): string | readonly ContentPart[] {
  if (typeof content === 'string') return content
  if (!isJsonList(content)) throw rejected(`${at}.content`, 'must be a string or a list of parts')
  return contentOf(Array.from(typedObjects(content, `${at}.content`), (part) => readPart(...part, unsupported)))
}

function readPart(part: TypedObject, at: string, unsupported: Unsupported): ContentPart {
  if (part.type === 'text') return { type: 'text', text: anyText(part, 'text', `${at}.`) }
  const image = part.type === 'image_url' ? readImage(part, at) : undefined
  if (image) return image
  unsupported.add(`${at}.type ${part.type}`)
  return { type: 'other', api: 'chat', value: part }
}

function readImage(part: JsonObject, at: string): ContentPart | undefined {
  const image = part['image_url']
  if (!isJsonObject(image)) throw rejected(`${at}.image_url`, 'must be an object with a url')
  const place = `${at}.image_url.`
  return imagePart(requiredText(image, 'url', place), optionalText(image, 'detail', place))
}

function readChatTools(body: JsonObject, unsupported: Unsupported): ToolDefinition[] {
  return openAiTools(body, unsupported, ({ function: described }, at) => {
    if (!isJsonObject(described)) throw rejected(`${at}.function`, 'must be an object with a name')
    return toolDefinition(described, `${at}.function.`)
  })
}

function readChatToolChoice(body: JsonObject, unsupported: Unsupported): ToolChoice | undefined {
  return openAiToolChoice(body, unsupported, ({ function: called }) => {
    if (!isJsonObject(called)) throw rejected('tool_choice.function', 'must be an object with the name of a tool')
    return requiredText(called, 'name', 'tool_choice.function.')
  })
}

function readChatFormat(body: JsonObject, unsupported: Unsupported): ResponseFormat | undefined {
  return openAiFormat(body['response_format'], 'response_format', unsupported, ({ json_schema: fields }) => {
    const at = 'response_format.json_schema'
    if (!isJsonObject(fields)) throw rejected(at, 'must be an object with name and schema')
    return { fields, at: `${at}.` }
  })
}
