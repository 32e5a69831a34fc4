import { changedInput, changesOf, inputOf } from '../../dialects/index.ts'
import {
  isJsonList,
  isJsonObject,
  type AssistantMessage,
  type ContentPart,
  type Json,
  type JsonObject,
  type Message,
  type OtherPart,
  type ToolCall,
} from '../../schema/index.ts'

/** Fields of a Responses item that the server sets about it, and that many clients leave out. */
const itemNames: ReadonlySet<string> = new Set(['id', 'status', 'created_by'])

type CalledFunction = ToolCall['function']

/** What a message says, in two pieces, so that a long text is compared in place and not copied behind its head first. */
export interface Meaning {
  readonly head: string
  readonly text: string
}

/**
 * What a message says, as text: messages with the same text are the same to a conversation, however they were written. Texts
 * are joined, absent counts as null or empty, and reasoning does not count, because clients drop it. Everything of free
 * length is last or has its length before it, so that no two meanings share a text, nor one text two pairs of pieces.
 */
export function meaningOf(message: Message): Meaning {
  return message.role === 'assistant' ? assistantMeaning(message, exactly) : givenMeaning(message)
}

/**
 * Like `meaningOf`, for messages whose tool calls may have been written anew: APIs that carry arguments as objects lose the
 * spaces and, in some languages, the order of keys; and a stream in another API has calls in the order in which they began.
 * Undefined for messages without tool calls.
 */
export function looseMeaningOf(message: Message): Meaning | undefined {
  if (message.role !== 'assistant' || !message.tool_calls?.length) return undefined
  return anewMeaning(message, inputOf)
}

/** What the loose meaning of a reply may become when Claude Code sends it back, because it changes calls of some tools. */
export function changedMeaningsOf(message: AssistantMessage): Meaning[] {
  const calls = (message.tool_calls ?? []).map(({ function: called }) => called)
  return changesOf(calls).map((change) =>
    anewMeaning(message, (called) => changedInput(called.name, inputOf(called), change)),
  )
}

/** The meaning with all arguments in one spelling, and the calls in one order. */
function anewMeaning(message: AssistantMessage, input: (called: CalledFunction) => JsonObject): Meaning {
  const calls = message.tool_calls?.toSorted(byId) ?? []
  return assistantMeaning({ ...message, tool_calls: calls }, (called) => JSON.stringify(sorted(input(called))))
}

function byId(one: ToolCall, other: ToolCall): number {
  return Number(one.id > other.id) - Number(one.id < other.id)
}

function givenMeaning(message: Exclude<Message, AssistantMessage>): Meaning {
  const speaker = speakerOf(message)
  const { content } = message
  if (typeof content === 'string') return { head: `${speaker}text `, text: content }
  if (content.every((part) => part.type === 'text')) {
    return { head: `${speaker}text `, text: content.map((part) => part.text).join('') }
  }
  return { head: `${speaker}parts `, text: partsMeaning(content) }
}

function speakerOf(message: Exclude<Message, AssistantMessage>): string {
  if (message.role === 'tool') return `tool${message.is_error === true ? ' failed' : ''} ${sized(message.tool_call_id)}`
  if (message.name !== undefined) return `${message.role} named ${sized(message.name)}`
  return `${message.role} `
}

function assistantMeaning(message: AssistantMessage, written: (called: CalledFunction) => string): Meaning {
  // Clients of Messages get a refusal as text and can send it back only as text, so it counts as text.
  const said = (message.content ?? '') + (message.refusal ?? '')
  const head = `assistant ${said.length} `
  const { tool_calls: calls = [], others = [] } = message
  if (calls.length + others.length === 0) return { head, text: said }
  let text = said
  for (const call of calls) text += callMeaning(call, written)
  for (const other of others) text += otherMeaning(other)
  return { head, text }
}

/** The meaning of a part of another API. Redacted thinking does not count, as reasoning does not. */
function otherMeaning({ api, value }: OtherPart): string {
  if (!isJsonObject(value)) return `other ${api} ${sized(JSON.stringify(value))}`
  const { type, audio } = value
  if (type === 'redacted_thinking') return ''
  // A client repeats audio by its id alone.
  if (isJsonObject(audio)) return `audio ${sized(JSON.stringify(audio['id'] ?? null))}`
  const said = Object.entries(value).filter(([name]) => api !== 'responses' || !itemNames.has(name))
  return `other ${api} ${sized(JSON.stringify(sorted(Object.fromEntries(said)), leaveOutNull))}`
}

function callMeaning({ id, function: called }: ToolCall, written: (called: CalledFunction) => string): string {
  return `call ${sized(id)}${sized(called.name)}${sized(written(called))}`
}

function partsMeaning(content: readonly ContentPart[]): string {
  let meaning = ''
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

function exactly({ arguments: written }: CalledFunction): string {
  return written
}

/** Leaves out fields that are null; in a list null has a place and stays. */
function leaveOutNull(this: Json, _name: string, value: Json | undefined): Json | undefined {
  return value === null && !Array.isArray(this) ? undefined : value
}

/** The value with the keys of every object in order. */
function sorted(value: Json): Json {
  if (typeof value !== 'object' || value === null) return value
  if (isJsonList(value)) return value.map(sorted)
  const entries = Object.entries(value).toSorted(([one], [other]) => (one < other ? -1 : 1))
  return Object.fromEntries(entries.map(([key, held]) => [key, held === undefined ? undefined : sorted(held)]))
}
