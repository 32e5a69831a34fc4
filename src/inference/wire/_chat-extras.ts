import { isJsonList, isJsonObject, type AssistantMessage, type Json, type JsonObject } from '../../schema/index.ts'
import type { ReplyDraft } from './_reply-draft.ts'
import { textIn, thoughtfulContent } from './thinking-part.ts'

/** What a message of ours holds, or what a server says that nobody misses. */
const known = new Set(['role', 'content', 'reasoning_content', 'reasoning', 'refusal', 'tool_calls'])

/** Of these, pieces repeat each other; other texts go on. */
const repeated = new Set(['id', 'type', 'format', 'index'])

type Growing = Json | Growing[] | Fields
type Fields = { [name: string]: Growing | undefined }

/**
 * What a chat message says beyond our own shape, whole or piece by piece: audio, annotations, reasoning that a server has
 * signed, a call in the words from before there were tools. Most say nothing of the kind.
 */
export class ChatExtras {
  #fields: Fields | undefined

  add(message: object): void {
    for (const name in message) {
      // Nearly all pieces of a stream have this one alone.
      if (name === 'content' || known.has(name)) continue
      const value = (message as JsonObject)[name]
      if (value === undefined || value === null || (isJsonList(value) && value.length === 0)) continue
      this.#fields ??= noFields()
      this.#fields[name] = grown(this.#fields[name], value)
    }
  }

  /** Keeps the reply in its own words if the message cannot hold all of it: these are in `whole`, or are put together. */
  keepIn(draft: ReplyDraft, whole?: object): void {
    const extras: JsonObject | undefined = this.#fields
    const { seals, thinksInContent } = draft
    if (!extras && !draft.hasCustomCalls && !seals && !thinksInContent && !hasOtherParts(whole)) return
    const audio = extras?.['audio']
    if (audio !== undefined) draft.addOther({ type: 'other', api: 'chat', value: { audio } })
    draft.original = { api: 'chat', output: [whole ? { ...whole } : { ...wordsOf(draft), ...extras }] }
  }
}

/** Whether its content is more than texts: an image that was made, what it refers to. */
function hasOtherParts(whole: { readonly content?: unknown } | undefined): boolean {
  const content = whole?.content
  return Array.isArray(content) && content.some((part: unknown) => textIn(part) === undefined)
}

/** A message that came in pieces, as its server would have written it whole. */
function wordsOf(draft: ReplyDraft): JsonObject {
  const message = withSeals(chatMessage(draft.message()), draft.seals)
  if (!draft.thinksInContent) return message
  const { reasoning_content: _thought, ...said } = message
  return { ...said, content: thoughtfulContent(draft.reasoning, draft.content) }
}

/** A message in the words of Chat, those included that only it knows. Audio is repeated by its name alone. */
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

/** The same with what a server wants to see again with each function that is called. */
export function withSeals(message: JsonObject, seals: readonly (Json | undefined)[] = []): JsonObject {
  const { tool_calls: calls } = message
  if (seals.length === 0 || !isJsonList(calls)) return message
  return { ...message, tool_calls: calls.map((call, index) => withSeal(call, seals[index])) }
}

function withSeal(call: Json, seal: Json | undefined): Json {
  return seal === undefined || !isJsonObject(call) ? call : { ...call, extra_content: seal }
}

/** What was with the functions that a message of a server calls. */
export function sealsIn({ tool_calls: calls }: JsonObject): (Json | undefined)[] {
  if (!isJsonList(calls)) return []
  return calls.flatMap((call) => (isJsonObject(call) && call['custom'] === undefined ? [call['extra_content']] : []))
}

/** Lists and objects are ours from the first piece on, so that each next one costs its own length only. */
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

/** Without a prototype: a server may call a field `__proto__`, and what is put into that would be in every object. */
function noFields(): Fields {
  return { __proto__: null }
}
