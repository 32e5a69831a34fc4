import type {
  AssistantMessage,
  ContentPart,
  Json,
  JsonObject,
  Message,
  SystemMessage,
  ToolMessage,
  UserMessage,
} from '../schema/index.ts'
import { isMadeUp, MadeUpIds, thoughtIn } from '../inference/index.ts'
import { AssistantDraft } from './_assistant-draft.ts'
import { contentOf, imagePart } from './_content.ts'
import { isAbsent, isJsonObject, isList } from './_json.ts'
import { rejected } from './_rejected.ts'
import { anyText, optionalText, requiredText, typedObject } from './_request-fields.ts'
import type { Untranslatable } from './_untranslatable.ts'

/** The state that is needed to read a message. */
interface Reading {
  readonly before: readonly Message[]
  readonly madeUpIds: MadeUpIds
  readonly untranslatable: Untranslatable
}

/**
 * Reads the messages of a Chat request, after those that were read before. They nearly have our own shape; fields that a
 * client adds to it are left out.
 */
export function readChatMessages(
  value: Json | undefined,
  untranslatable: Untranslatable,
  before: readonly Message[] = [],
): Message[] {
  if (!isList(value) || before.length + value.length === 0) {
    throw rejected('messages', 'must be a list of at least one message')
  }
  const messages = [...before]
  const reading = { before: messages, madeUpIds: new MadeUpIds(messages), untranslatable }
  for (const message of value) messages.push(readMessage(message, reading))
  return messages
}

function readMessage(value: Json, reading: Reading): Message {
  const { before, untranslatable } = reading
  const at = `messages[${before.length}]`
  if (!isJsonObject(value)) throw rejected(at, 'must be an object with a role and content')
  const role = requiredText(value, 'role', `${at}.`)
  switch (role) {
    case 'system':
    case 'developer':
      return named({ role, content: readContent(value['content'], at, untranslatable) }, value, at, untranslatable)
    case 'user':
      return readUser(value, at, untranslatable)
    case 'assistant':
      return named(readAssistant(value, at, reading), value, at, untranslatable)
    case 'tool':
      return readTool(value, before, untranslatable)
    case 'function':
      throw rejected(
        `${at}.role`,
        'is "function", which tools replaced: send role "tool" with the call\'s tool_call_id',
      )
    default:
      throw rejected(`${at}.role`, 'must be "system", "developer", "user", "assistant" or "tool"')
  }
}

function readUser(value: JsonObject, at: string, untranslatable: Untranslatable): UserMessage {
  const content = readContent(value['content'], at, untranslatable)
  const name = optionalText(value, 'name', `${at}.`)
  return name === undefined ? { role: 'user', content } : { role: 'user', content, name }
}

function readTool(value: JsonObject, before: readonly Message[], untranslatable: Untranslatable): ToolMessage {
  const at = `messages[${before.length}]`
  const id = answeredId(value, before) ?? requiredText(value, 'tool_call_id', `${at}.`)
  const content = readContent(value['content'], at, untranslatable)
  // `is_error` is not part of this API, but a failed tool of another API is written with it.
  if (value['is_error'] === true) return { role: 'tool', tool_call_id: id, content, is_error: true }
  return { role: 'tool', tool_call_id: id, content }
}

/**
 * The id of the call that a result without an id answers. If calls had no ids, their results come in the order of the calls.
 */
function answeredId({ tool_call_id: id }: JsonObject, before: readonly Message[]): string | undefined {
  if (id !== '' && !isAbsent(id)) return undefined
  const asked = before.findLastIndex(({ role }) => role !== 'tool')
  const message = before[asked]
  const call = message?.role === 'assistant' ? message.tool_calls?.[before.length - asked - 1] : undefined
  return call && isMadeUp(call.id) ? call.id : undefined
}

function readAssistant(value: JsonObject, at: string, reading: Reading): AssistantMessage {
  const { untranslatable } = reading
  const draft = new AssistantDraft()
  readSpoken(draft, value['content'], at, untranslatable)
  // Servers have two names for this field, and clients send back the one they got.
  draft.reasoning =
    optionalText(value, 'reasoning_content', `${at}.`) || optionalText(value, 'reasoning', `${at}.`) || draft.reasoning
  draft.refusal += optionalText(value, 'refusal', `${at}.`) ?? ''
  if (!isAbsent(value['function_call'])) {
    throw rejected(`${at}.function_call`, 'was replaced by tool_calls: send the call as one of these')
  }
  const { tool_calls: calls, audio } = value
  if (!isAbsent(calls)) readToolCalls(draft, calls, at, reading)
  if (!isAbsent(audio)) {
    untranslatable.add(`${at}.audio`)
    draft.addOther('chat', { audio })
  }
  return draft.message()
}

function readToolCalls(draft: AssistantDraft, calls: Json, at: string, reading: Reading): void {
  if (!isList(calls)) throw rejected(`${at}.tool_calls`, 'must be a list, or left out')
  for (let index = 0; index < calls.length; index += 1) {
    readToolCall(draft, calls[index], `${at}.tool_calls[${index}]`, reading)
  }
}

function readToolCall(draft: AssistantDraft, call: Json | undefined, at: string, reading: Reading): void {
  if (!isJsonObject(call)) throw rejected(at, 'must be an object')
  const type = optionalText(call, 'type', `${at}.`) ?? 'function'
  if (type !== 'function') {
    reading.untranslatable.add(`${at}.type ${type}`)
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
  const id = optionalText(call, 'id', `${at}.`) || reading.madeUpIds.at(draft.calls.length)
  draft.addCall(id, requiredText(called, 'name', `${at}.function.`), written)
}

/** Reads the assistant's content as one text, though it may come back in parts. */
function readSpoken(
  draft: AssistantDraft,
  content: Json | undefined,
  at: string,
  untranslatable: Untranslatable,
): void {
  if (isAbsent(content)) return
  if (typeof content === 'string') {
    draft.text = content
    return
  }
  if (!isList(content)) throw rejected(`${at}.content`, 'must be a string, a list of parts or null')
  for (let index = 0; index < content.length; index += 1) {
    const place = `${at}.content[${index}]`
    const part = typedObject(content[index], place)
    const thought = thoughtIn(part)
    if (thought !== undefined) draft.reasoning += thought
    else if (part.type === 'text') draft.text += anyText(part, 'text', `${place}.`)
    else if (part.type === 'refusal') draft.refusal += anyText(part, 'refusal', `${place}.`)
    else {
      untranslatable.add(`${place}.type ${part.type}`)
      draft.addOther('chat', part)
    }
  }
}

function readContent(
  content: Json | undefined,
  at: string,
  untranslatable: Untranslatable,
): string | readonly ContentPart[] {
  if (typeof content === 'string') return content
  if (!isList(content)) throw rejected(`${at}.content`, 'must be a string or a list of parts')
  return contentOf(content.map((part, index) => readPart(part, `${at}.content[${index}]`, untranslatable)))
}

function readPart(value: Json, at: string, untranslatable: Untranslatable): ContentPart {
  const part = typedObject(value, at)
  if (part.type === 'text') return { type: 'text', text: anyText(part, 'text', `${at}.`) }
  const image = part.type === 'image_url' ? readImage(part, at) : undefined
  if (image) return image
  untranslatable.add(`${at}.type ${part.type}`)
  return { type: 'other', api: 'chat', value: part }
}

function readImage(part: JsonObject, at: string): ContentPart | undefined {
  const image = part['image_url']
  if (!isJsonObject(image)) throw rejected(`${at}.image_url`, 'must be an object with a url')
  const place = `${at}.image_url.`
  return imagePart(requiredText(image, 'url', place), optionalText(image, 'detail', place))
}

/** Adds the name of the speaker. Only for users do other APIs have one too. */
function named<Said extends SystemMessage | AssistantMessage>(
  message: Said,
  value: JsonObject,
  at: string,
  untranslatable: Untranslatable,
): Said {
  const name = optionalText(value, 'name', `${at}.`)
  if (name === undefined) return message
  untranslatable.add(`${at}.name`)
  return { ...message, name }
}
