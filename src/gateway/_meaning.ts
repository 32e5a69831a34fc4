import { argumentsKey } from '../dialects/index.ts'
import {
  isJsonList,
  type AssistantMessage,
  type ContentPart,
  type Json,
  type Message,
  type ToolCall,
} from '../schema/index.ts'

/**
 * What a message says, as text: two messages with one text are the same to a conversation, however they were written.
 * Text is joined, absent is as good as null or empty, and reasoning does not count, because clients drop it. Everything of
 * free length is last or has its length before it, so that no two meanings share a text.
 */
export function meaningOf(message: Message): string {
  return message.role === 'assistant' ? assistantMeaning(message, exactly) : givenMeaning(message)
}

/**
 * The same for messages whose tool calls may have been written anew: APIs that carry arguments as objects lose the spaces
 * and, in some languages, the order of keys. Undefined where it makes no difference.
 */
export function looseMeaningOf(message: Message): string | undefined {
  if (message.role !== 'assistant' || !message.tool_calls?.length) return undefined
  return assistantMeaning(message, canonicalArguments)
}

function givenMeaning(message: Exclude<Message, AssistantMessage>): string {
  const content = contentMeaning(message.content)
  if (message.role === 'tool') {
    const failed = message.is_error === true ? ' failed' : ''
    return `tool${failed} ${sized(message.tool_call_id)}${content}`
  }
  if (message.role === 'user' && message.name !== undefined) return `user named ${sized(message.name)}${content}`
  return `${message.role} ${content}`
}

function assistantMeaning(message: AssistantMessage, written: (text: string) => string): string {
  // A refusal is a text like any other to a client of Messages, who can send it back only as one.
  let text = `assistant ${sized((message.content ?? '') + (message.refusal ?? ''))}`
  for (const call of message.tool_calls ?? []) text += callMeaning(call, written)
  return text
}

function callMeaning({ id, function: called }: ToolCall, written: (text: string) => string): string {
  return `call ${sized(id)}${sized(called.name)}${sized(written(called.arguments))}`
}

function contentMeaning(content: string | readonly ContentPart[]): string {
  if (typeof content === 'string') return `text ${content}`
  if (content.every((part) => part.type === 'text')) return `text ${content.map((part) => part.text).join('')}`
  let meaning = 'parts '
  let text = ''
  for (const part of content) {
    if (part.type === 'text') {
      text += part.text
      continue
    }
    meaning += sized(text) + partMeaning(part)
    text = ''
  }
  return meaning + sized(text)
}

function partMeaning(part: Exclude<ContentPart, { readonly type: 'text' }>): string {
  if (part.type === 'other') return `other ${part.api} ${sized(JSON.stringify(sorted(part.value)))}`
  return `image ${part.image_url.detail ?? 'auto'} ${sized(part.image_url.url)}`
}

function sized(text: string): string {
  return `${text.length} ${text}`
}

function exactly(text: string): string {
  return text
}

/** In one spelling, whatever it was written in. */
function canonicalArguments(written: string): string {
  return JSON.stringify(sorted(JSON.parse(argumentsKey(written)) as Json))
}

/** With the keys of every object in order. */
function sorted(value: Json): Json {
  if (typeof value !== 'object' || value === null) return value
  if (isJsonList(value)) return value.map(sorted)
  const entries = Object.entries(value).toSorted(([one], [other]) => (one < other ? -1 : 1))
  return Object.fromEntries(entries.map(([key, held]) => [key, held === undefined ? undefined : sorted(held)]))
}
