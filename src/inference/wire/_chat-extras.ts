import { isJsonList, isJsonObject, type AssistantMessage, type Json, type JsonObject } from '../../schema/index.ts'
import type { ReplyDraft } from './_reply-draft.ts'
import { textIn, thoughtfulContent } from './thinking-part.ts'

/** Fields that are not extras: our own message has a place for them, or nobody needs them. */
const known = new Set(['role', 'content', 'reasoning_content', 'reasoning', 'refusal', 'tool_calls'])

/** Fields that pieces of a stream repeat; the texts of all other fields are continued by the next piece. */
const repeated = new Set(['id', 'type', 'format', 'index'])

type Growing = Json | Growing[] | Fields
type Fields = { [name: string]: Growing | undefined }

/**
 * The fields of a chat message that our own shape has no place for, read whole or piece by piece: audio, annotations, signed
 * reasoning, `function_call`. Most messages have none.
 */
export class ChatExtras {
  #fields: Fields | undefined

  add(message: object): void {
    for (const name in message) {
      // Nearly all pieces of a stream have only `content`.
      if (name === 'content' || known.has(name)) continue
      const value = (message as JsonObject)[name]
      if (value === undefined || value === null || (isJsonList(value) && value.length === 0)) continue
      this.#fields ??= noFields()
      this.#fields[name] = grown(this.#fields[name], value)
    }
  }

  /**
   * Keeps the reply in its original words if the message cannot hold all of it: `whole`, or the words put together from the
   * pieces.
   */
  keepIn(draft: ReplyDraft, whole?: object): void {
    const extras: JsonObject | undefined = this.#fields
    const { seals, thinksInContent } = draft
    if (!extras && !draft.hasCustomCalls && !seals && !thinksInContent && !hasOtherParts(whole)) return
    const audio = extras?.['audio']
    if (audio !== undefined) draft.addOther({ type: 'other', api: 'chat', value: { audio } })
    draft.original = { api: 'chat', output: [whole ? { ...whole } : { ...wordsOf(draft), ...extras }] }
  }
}

/** Whether the content has parts that are no text, such as generated images or references. */
function hasOtherParts(whole: { readonly content?: unknown } | undefined): boolean {
  const content = whole?.content
  return Array.isArray(content) && content.some((part: unknown) => textIn(part) === undefined)
}

/** A message that came in pieces, written as its server would have written it whole. */
function wordsOf(draft: ReplyDraft): JsonObject {
  const message = withSeals(chatMessage(draft.message()), draft.seals)
  if (!draft.thinksInContent) return message
  const { reasoning_content: _thought, ...said } = message
  return { ...said, content: thoughtfulContent(draft.reasoning, draft.content) }
}

/** A message in the words of Chat, including the parts that only Chat knows. Audio is repeated by its id alone. */
export function chatMessage({ others = [], tool_calls: functions = [], ...message }: AssistantMessage): JsonObject {
  const sent: Record<string, Json | undefined> = { ...message }
  const calls: Json[] = functions.map((call) => ({ ...call }))
  for (const { api, value } of others) {
    if (api !== 'chat' || !isJsonObject(value)) continue
    const { audio } = value
    if (isJsonObject(audio)) sent['audio'] = { id: audio['id'] }
    else if (value['id'] !== undefined) calls.push(value)
  }
  if (calls.length > 0) sent['tool_calls'] = calls
  return sent
}

/** The message with each function call's `extra_content`, which its server wants to see again. */
export function withSeals(message: JsonObject, seals: readonly (Json | undefined)[] = []): JsonObject {
  const { tool_calls: calls } = message
  if (seals.length === 0 || !isJsonList(calls)) return message
  return { ...message, tool_calls: calls.map((call, index) => withSeal(call, seals[index])) }
}

function withSeal(call: Json, seal: Json | undefined): Json {
  return seal === undefined || !isJsonObject(call) ? call : { ...call, extra_content: seal }
}

/** The `extra_content` of each function call in a server's message. */
export function sealsIn({ tool_calls: calls }: JsonObject): (Json | undefined)[] {
  if (!isJsonList(calls)) return []
  return calls.flatMap((call) => (isJsonObject(call) && call['custom'] === undefined ? [call['extra_content']] : []))
}

/**
 * Adds a piece to what is there already. The lists and objects of the sum are our own, so a piece costs only its own length.
 */
function grown(sum: Growing | undefined, piece: Json): Growing {
  if (typeof sum === 'string' && typeof piece === 'string') return sum + piece
  if (isJsonList(piece)) {
    const list: Growing[] = Array.isArray(sum) ? sum : []
    for (const value of piece) list.push(value)
    return list
  }
  if (!isJsonObject(piece)) return piece
  const fields: Fields = isJsonObject(sum) ? sum : noFields()
  for (const [name, value] of Object.entries(piece)) {
    if (value !== undefined) fields[name] = repeated.has(name) ? value : grown(fields[name], value)
  }
  return fields
}

/** An object without a prototype: a server may name a field `__proto__`, and values put into that would be in every object. */
function noFields(): Fields {
  return { __proto__: null }
}
