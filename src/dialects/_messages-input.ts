import type { ContentPart, Json, JsonObject, Message } from '../schema/index.ts'
import { AssistantDraft } from './_assistant-draft.ts'
import { readBlock, withoutCaching } from './_messages-block.ts'
import { contentOf } from './_content.ts'
import { isAbsent, isJsonObject, isList } from './_json.ts'
import { rejected } from './_rejected.ts'
import { anyText, requiredText, typedObject, type TypedObject } from './_request-fields.ts'
import { writtenArguments } from './tool-input.ts'
import type { Untranslatable } from './_untranslatable.ts'

/** Reads the conversation of a Messages request. Its system prompt becomes the first message. */
export function readMessagesInput(body: JsonObject, untranslatable: Untranslatable): Message[] {
  const messages: Message[] = []
  const system = body['system']
  if (!isAbsent(system)) {
    const content = readContent(withoutLabel(system, untranslatable), 'system', untranslatable)
    if (content !== '') messages.push({ role: 'system', content })
  }
  const turns = body['messages']
  if (!isList(turns) || turns.length === 0) throw rejected('messages', 'must be a list of at least one message')
  for (let index = 0; index < turns.length; index += 1) {
    readTurn(messages, turns[index], `messages[${index}]`, untranslatable)
  }
  // A reply would have to continue this turn, but other APIs begin a new one.
  if (messages.at(-1)?.role === 'assistant') untranslatable.add(`messages[${turns.length - 1}] a prefilled reply`)
  return messages
}

/** How the first text of Claude Code's system prompt begins: a label for Anthropic, which changes from version to version. */
const labelPrefix = 'x-anthropic-billing-header:'

/** The system prompt without that label, which is not meant for the model, if the request is translated. */
function withoutLabel(system: Json, untranslatable: Untranslatable): Json {
  if (!untranslatable.isTranslated || !isList(system)) return system
  const [first] = system
  const text = isJsonObject(first) ? first['text'] : undefined
  if (typeof text !== 'string' || !text.startsWith(labelPrefix)) return system
  untranslatable.addDropped('system[0] x-anthropic-billing-header')
  return system.slice(1)
}

function readTurn(messages: Message[], turn: Json | undefined, at: string, untranslatable: Untranslatable): void {
  if (!isJsonObject(turn)) throw rejected(at, 'must be an object with a role and content')
  const content = turn['content']
  switch (requiredText(turn, 'role', `${at}.`)) {
    case 'user':
      readUser(messages, content, `${at}.content`, untranslatable)
      return
    case 'assistant':
      messages.push(readAssistant(content, `${at}.content`, untranslatable))
      return
    case 'system':
      messages.push({ role: 'system', content: readContent(content, `${at}.content`, untranslatable) })
      return
    default:
      throw rejected(`${at}.role`, 'must be "user" or "assistant"')
  }
}

/** Reads a user's turn. Tool results are blocks of that turn here, but messages of their own elsewhere: they come first. */
function readUser(messages: Message[], content: Json | undefined, at: string, untranslatable: Untranslatable): void {
  if (!isList(content)) {
    messages.push({ role: 'user', content: readContent(content, at, untranslatable) })
    return
  }
  const parts: ContentPart[] = []
  for (let index = 0; index < content.length; index += 1) {
    const place = `${at}[${index}]`
    const block = typedObject(content[index], place)
    if (block.type === 'tool_result') messages.push(readToolResult(block, place, untranslatable))
    else parts.push(readBlock(block, place, untranslatable))
  }
  if (parts.length > 0 || content.length === 0) messages.push({ role: 'user', content: contentOf(parts) })
}

function readToolResult(block: TypedObject, at: string, untranslatable: Untranslatable): Message {
  const id = requiredText(block, 'tool_use_id', `${at}.`)
  const result = block['content']
  const content = isAbsent(result) ? '' : readContent(result, `${at}.content`, untranslatable)
  if (block['is_error'] === true) return { role: 'tool', tool_call_id: id, content, is_error: true }
  return { role: 'tool', tool_call_id: id, content }
}

function readAssistant(content: Json | undefined, at: string, untranslatable: Untranslatable): Message {
  const draft = new AssistantDraft()
  if (typeof content === 'string') draft.text = content
  else if (isList(content)) {
    for (let index = 0; index < content.length; index += 1) {
      const place = `${at}[${index}]`
      readSpoken(draft, typedObject(content[index], place), place, untranslatable)
    }
  } else throw rejected(at, 'must be a string or a list of blocks')
  return draft.message()
}

/**
 * Reads one block of an assistant's turn. A turn is kept as thought, text and calls, in the order in which they are sampled.
 */
function readSpoken(draft: AssistantDraft, block: TypedObject, at: string, untranslatable: Untranslatable): void {
  switch (block.type) {
    case 'text':
      draft.text += anyText(block, 'text', `${at}.`)
      return
    case 'thinking':
      draft.reasoning += anyText(block, 'thinking', `${at}.`)
      return
    case 'tool_use': {
      const input = block['input']
      if (!isJsonObject(input)) throw rejected(`${at}.input`, 'must be an object')
      draft.addCall(requiredText(block, 'id', `${at}.`), requiredText(block, 'name', `${at}.`), writtenArguments(input))
      return
    }
    default: {
      untranslatable.add(`${at}.type ${block.type}`)
      draft.addOther('messages', withoutCaching(block))
    }
  }
}

function readContent(
  content: Json | undefined,
  at: string,
  untranslatable: Untranslatable,
): string | readonly ContentPart[] {
  if (typeof content === 'string') return content
  if (!isList(content)) throw rejected(at, 'must be a string or a list of blocks')
  return contentOf(
    content.map((block, index) => {
      const place = `${at}[${index}]`
      return readBlock(typedObject(block, place), place, untranslatable)
    }),
  )
}
