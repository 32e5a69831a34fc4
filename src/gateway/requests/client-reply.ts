import {
  type BackendReply,
  type DialectRequest,
  eventText,
  type ReplyEvent,
  type ReplyHead,
  type ReplyStreamWriter,
  type ServerDialect,
} from '../../apis/index.ts'
import type { MillraceError } from '../../errors/index.ts'
import type { InvalidReply, CompleteReply } from '../../inference/index.ts'
import { sseEvent } from '../../kit/index.ts'
import { type ClientApi, isJsonObject, type ItemIds, type ItemKind, type JsonObject } from '../../schema/index.ts'
import type { TurnTokens } from '../sessions/session-tree.ts'

type RequestAnswer =
  | { readonly kind: 'counted' }
  | {
      readonly kind: 'complete'
      readonly replyId: string
      readonly reply?: CompleteReply
      readonly turn?: TurnTokens | undefined
    }
  | { readonly kind: 'broken'; readonly error: MillraceError; readonly reply?: InvalidReply }

export interface RequestEnd {
  readonly answer: RequestAnswer
  readonly status: number
}

export const clientClosedStatus = 499

export interface ClientStream {
  readonly replyId: string | undefined
  readonly itemIds?: ItemIds | undefined
  start(): string
  event(event: ReplyEvent): string
  end(reply: BackendReply): string
}

/** The events that clients wait for after the one that says how a reply ended. A backend may be cut off between the two. */
const lastEvents: Readonly<Record<ClientApi, string>> = {
  chat: sseEvent('[DONE]'),
  messages: sseEvent('{"type":"message_stop"}', 'message_stop'),
  responses: '',
  generate: sseEvent('[DONE]'),
}

/** Line ends, which a line of an event must not contain. Outside of strings in JSON they are space. */
const lineEnd = /[\r\n]/

/**
 * A stream whose client speaks the backend's API: events are passed on as they came. From the one on that says how the reply
 * ended they are held back, and the very last one is written by `end`: `[DONE]` without a finish before it is no end.
 */
export class PassedStream implements ClientStream {
  readonly #api: ClientApi
  readonly #view: ClientView | undefined
  replyId: string | undefined
  itemIds: ItemIds | undefined
  #kept = ''

  constructor(api: ClientApi, view: ClientView | undefined) {
    this.#api = api
    this.#view = view
  }

  start(): string {
    return ''
  }

  event({ data, document, isEnd }: ReplyEvent): string {
    if (!document) return ''
    this.replyId ??= replyIdIn(document)
    const text = this.#text(data, document)
    if (!isEnd) return text
    if (this.#api === 'responses') this.itemIds ??= itemIdsIn(document)
    this.#kept += text
    return ''
  }

  end(): string {
    return this.#kept + lastEvents[this.#api]
  }

  #text(data: string, document: object): string {
    const seen = this.#view ? this.#view(document) : document
    const { type }: { readonly type?: unknown } = document
    if (!seen || type === 'message_stop') return ''
    // A backend may write an event over several lines.
    const written = seen !== document || lineEnd.test(data) ? JSON.stringify(seen) : data
    const hasName = this.#api !== 'chat' && typeof type === 'string' && !lineEnd.test(type)
    return sseEvent(written, hasName ? type : undefined)
  }
}

/** A stream whose client speaks another API than the backend: each event is written anew in the client's API. */
export class TranslatedStream implements ClientStream {
  readonly replyId: string
  readonly #writer: ReplyStreamWriter

  constructor(dialect: ServerDialect, head: ReplyHead) {
    this.replyId = head.id
    this.#writer = dialect.stream(head)
  }

  start(): string {
    return this.#writer.start().map(eventText).join('')
  }

  event({ deltas }: ReplyEvent): string {
    return deltas.flatMap((delta) => this.#writer.delta(delta).map(eventText)).join('')
  }

  end(reply: BackendReply): string {
    return this.#writer.end(reply).map(eventText).join('')
  }
}

/** The backend's id of a reply, from a whole reply or the first event of a stream, which may hold the reply's document. */
export function replyIdIn(document: object): string | undefined {
  const { id, response, message, meta_info: meta } = document as Readonly<Record<string, unknown>>
  if (typeof id === 'string' && id !== '') return id
  for (const inner of [response, message, meta]) {
    if (isJsonObject(inner) && typeof inner['id'] === 'string') return inner['id']
  }
  return undefined
}

const itemKinds: Readonly<Record<string, ItemKind>> = { reasoning: 'rs', message: 'msg', function_call: 'fc' }

/** The backend's ids of a Responses reply's items, from a whole reply or the last event of a stream. */
export function itemIdsIn(document: object): ItemIds | undefined {
  const { output, response }: { readonly output?: unknown; readonly response?: unknown } = document
  const items = output ?? (isJsonObject(response) ? response['output'] : undefined)
  if (!Array.isArray(items)) return undefined
  const ids: Partial<Record<ItemKind, string[]>> = {}
  for (const item of items) {
    const { type, id } = isJsonObject(item) ? item : {}
    const kind = typeof type === 'string' ? itemKinds[type] : undefined
    // Items without an id count, too, because items are found by their number.
    if (kind) (ids[kind] ??= []).push(typeof id === 'string' ? id : '')
  }
  return ids
}

/** What a client is shown of a reply or an event: the document itself, a copy with less, or nothing. */
export type ClientView = (document: object) => object | undefined

/** The fields in which vLLM and SGLang report tokens, each with the fields of a request that ask for it. */
const tokenFields: readonly (readonly [field: string, askedBy: readonly string[]])[] = [
  ['token_ids', ['return_token_ids']],
  ['response_token_ids', ['return_token_ids']],
  ['prompt_token_ids', ['return_token_ids', 'return_prompt_token_ids']],
  ['routed_experts', ['return_token_ids', 'return_routed_experts']],
  ['meta_info', ['return_meta_info']],
  ['sgl_ext', ['return_routed_experts', 'return_cached_tokens_details']],
  ['sglext', ['return_routed_experts', 'return_cached_tokens_details']],
]

const allFlags = [...new Set(tokenFields.flatMap(([, flags]) => flags))]

export function asksForTokens({ wantsLogprobs, body }: DialectRequest): boolean {
  return wantsLogprobs || allFlags.some((flag) => body[flag] === true)
}

export function chatView({ wantsLogprobs, stream, includeUsage, body }: DialectRequest): ClientView {
  const hidden = tokenFields.filter(([, flags]) => !flags.some((flag) => body[flag] === true)).map(([field]) => field)
  // Whole replies have their usage anyway.
  const hidesUsage = stream && !includeUsage
  const hiddenInReply = hidesUsage ? [...hidden, 'usage'] : hidden
  const choiceView = (choice: unknown): unknown => {
    if (!isJsonObject(choice)) return choice
    const seen = without(choice, hidden)
    // `logprobs` becomes null, because the API has the field in every choice.
    return !wantsLogprobs && seen['logprobs'] ? { ...seen, logprobs: null } : seen
  }
  return (document) => {
    const { choices, usage }: { readonly choices?: unknown; readonly usage?: unknown } = document
    const seen = without(document, hiddenInReply)
    if (!Array.isArray(choices)) return seen
    if (hidesUsage && usage && choices.length === 0) return undefined
    const seenChoices = choices.map(choiceView)
    return seenChoices.every((choice, index) => choice === choices[index]) ? seen : { ...seen, choices: seenChoices }
  }
}

export const generateTokenFields: JsonObject = {
  return_logprob: true,
  return_prompt_token_ids: true,
  return_routed_experts: true,
}

const logprobFields = [
  'output_token_logprobs',
  'output_token_logprobs_length',
  'output_top_logprobs',
  'output_token_ids_logprobs',
  'input_token_logprobs',
  'input_top_logprobs',
  'input_token_ids_logprobs',
]

export function generateView({ body, wantsLogprobs }: DialectRequest): ClientView {
  const hidden = body['return_prompt_token_ids'] === true ? [] : ['prompt_token_ids']
  const hiddenInMeta = [
    ...(wantsLogprobs ? [] : logprobFields),
    ...(body['return_routed_experts'] === true ? [] : ['routed_experts']),
  ]
  return (document) => {
    const { meta_info: meta }: { readonly meta_info?: unknown } = document
    const seen = without(document, hidden)
    if (!isJsonObject(meta)) return seen
    const seenMeta = without(meta, hiddenInMeta)
    return seenMeta === meta ? seen : { ...seen, meta_info: seenMeta }
  }
}

/** With the id of the reply that the client continues: the backend was sent the whole conversation in its place. */
export function continuedView(replyId: string): ClientView {
  const fields = { previous_response_id: replyId }
  return (document) => {
    const { object, response }: { readonly object?: unknown; readonly response?: unknown } = document
    if (isJsonObject(response)) return { ...document, response: { ...response, ...fields } }
    return object === 'response' ? { ...document, ...fields } : document
  }
}

/** The object itself if it has none of the fields, else a copy in which they are undefined, which JSON leaves out. */
function without(holder: object, fields: readonly string[]): Readonly<Record<string, unknown>> {
  const members = holder as Readonly<Record<string, unknown>>
  if (!fields.some((field) => members[field] !== undefined)) return members
  const seen: Record<string, unknown> = { ...members }
  for (const field of fields) if (seen[field] !== undefined) seen[field] = undefined
  return seen
}
