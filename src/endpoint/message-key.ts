import { hash } from 'node:crypto'
import { changedInput, changesOf, inputOf, sameArguments } from '../apis/index.ts'
import {
  type AssistantMessage,
  type ContentPart,
  isJsonList,
  isJsonObject,
  type Json,
  type JsonObject,
  type Message,
  type OtherPart,
  type ToolCall,
} from '../schema/index.ts'

/** Fields of a Responses item that the server sets about it, and that many clients leave out. */
const itemNames: ReadonlySet<string> = new Set(['id', 'status', 'created_by'])

type CalledFunction = ToolCall['function']

export class MessageKey {
  readonly message: Message
  #digest: string | undefined
  #looseDigest: string | undefined

  constructor(message: Message) {
    this.message = message
  }

  get digest(): string {
    return (this.#digest ??= digestOf(canonicalForm(this.message)))
  }

  /** A digest that is the same however the tool calls are spelled. Undefined for messages without tool calls. */
  get looseDigest(): string | undefined {
    if (this.#looseDigest === undefined) {
      const form = looseCanonicalForm(this.message)
      this.#looseDigest = form === undefined ? undefined : digestOf(form)
    }
    return this.#looseDigest
  }

  /** The loose digests that a reply may have when Claude Code sends it back, because it changes calls of some tools. */
  changedDigests(): string[] {
    const { message } = this
    if (message.role !== 'assistant') return []
    const calls = (message.tool_calls ?? []).map(({ function: called }) => called)
    return changesOf(calls).map((change) =>
      digestOf(respelledForm(message, (called) => changedInput(called.name, inputOf(called), change))),
    )
  }
}

function digestOf(form: string): string {
  // Half a character (a lone surrogate, left where a text was cut) has no UTF-8: all such halves would hash alike.
  return hash('sha256', form.isWellFormed() ? form : JSON.stringify(form), 'base64url')
}

/**
 * A message as text: messages with the same text are the same to a conversation, however they were written. Texts are joined,
 * absent counts as null or empty, and reasoning does not count, because clients drop it. Everything of free length is last or
 * has its length before it, so that no two messages that differ share a text.
 */
export function canonicalForm(message: Message): string {
  if (message.role === 'assistant') return assistantForm(message, ({ arguments: written }) => written)
  const speaker = speakerOf(message)
  const { content } = message
  if (typeof content === 'string') return `${speaker}text ${content}`
  if (content.every((part) => part.type === 'text')) {
    return `${speaker}text ${content.map((part) => part.text).join('')}`
  }
  return `${speaker}parts ${partsForm(content)}`
}

/** Like `canonicalForm`, however tool calls are spelled and ordered. Undefined for messages without tool calls. */
export function looseCanonicalForm(message: Message): string | undefined {
  if (message.role !== 'assistant' || !message.tool_calls?.length) return undefined
  return respelledForm(message, inputOf)
}

function respelledForm(message: AssistantMessage, input: (called: CalledFunction) => JsonObject): string {
  const calls =
    message.tool_calls?.toSorted((one, other) => Number(one.id > other.id) - Number(one.id < other.id)) ?? []
  return assistantForm({ ...message, tool_calls: calls }, (called) => JSON.stringify(sorted(input(called))))
}

function speakerOf(message: Exclude<Message, AssistantMessage>): string {
  if (message.role === 'tool') return `tool${message.is_error === true ? ' failed' : ''} ${sized(message.tool_call_id)}`
  if (message.name !== undefined) return `${message.role} named ${sized(message.name)}`
  return `${message.role} `
}

function assistantForm(message: AssistantMessage, written: (called: CalledFunction) => string): string {
  // Clients of Messages get a refusal as text and can send it back only as text, so it counts as text.
  let form = `assistant ${sized((message.content ?? '') + (message.refusal ?? ''))}`
  for (const { id, function: called } of message.tool_calls ?? []) {
    form += `call ${sized(id)}${sized(called.name)}${sized(written(called))}`
  }
  for (const other of message.others ?? []) form += otherForm(other)
  return form
}

/** A part of another API. Redacted thinking does not count, as reasoning does not. */
function otherForm({ api, value }: OtherPart): string {
  if (!isJsonObject(value)) return `other ${api} ${sized(JSON.stringify(value))}`
  const { type, audio } = value
  if (type === 'redacted_thinking') return ''
  // A client repeats audio by its id alone.
  if (isJsonObject(audio)) return `audio ${sized(JSON.stringify(audio['id'] ?? null))}`
  const compared = Object.entries(value).filter(([name]) => api !== 'responses' || !itemNames.has(name))
  return `other ${api} ${sized(JSON.stringify(sorted(Object.fromEntries(compared)), leaveOutNull))}`
}

function partsForm(content: readonly ContentPart[]): string {
  let form = ''
  let text = ''
  for (const part of content) {
    if (part.type === 'text') {
      text += part.text
      continue
    }
    form += sized(text) + partForm(part)
    text = ''
  }
  return form + sized(text)
}

function partForm(part: Exclude<ContentPart, { readonly type: 'text' }>): string {
  if (part.type === 'other') return `other ${part.api} ${sized(JSON.stringify(sorted(part.value)))}`
  return `image ${part.image_url.detail ?? 'auto'} ${sized(part.image_url.url)}`
}

function sized(text: string): string {
  return `${text.length} ${text}`
}

/** Leaves out fields that are null; in a list null has a place and stays. */
function leaveOutNull(this: Json, _name: string, value: Json | undefined): Json | undefined {
  return value === null && !Array.isArray(this) ? undefined : value
}

function sorted(value: Json): Json {
  if (typeof value !== 'object' || value === null) return value
  if (isJsonList(value)) return value.map(sorted)
  const entries = Object.entries(value).toSorted(([one], [other]) => (one < other ? -1 : 1))
  return Object.fromEntries(entries.map(([key, held]) => [key, held === undefined ? undefined : sorted(held)]))
}

export function withRecordedArguments(message: AssistantMessage, recorded: readonly ToolCall[]): AssistantMessage {
  // A client may send calls in another order. Calls with one id are told apart by their order.
  const left = [...recorded]
  const calls = callsIn(message).map((sent) => {
    const index = left.findIndex(({ id }) => id === sent.id)
    const [found] = index === -1 ? [] : left.splice(index, 1)
    return found ? inSpellingOf(found, sent) : sent
  })
  return { ...message, tool_calls: calls }
}

function inSpellingOf({ function: recorded }: ToolCall, sent: ToolCall): ToolCall {
  const { name } = recorded
  const changes = changesOf([recorded]).map((change) => (input: JsonObject) => changedInput(name, input, change))
  if (!sameArguments(recorded.arguments, sent.function.arguments, changes)) return sent
  return { ...sent, function: { ...sent.function, arguments: recorded.arguments } }
}

export function callsIn(message: Message | undefined): readonly ToolCall[] {
  return message?.role === 'assistant' ? (message.tool_calls ?? []) : []
}
