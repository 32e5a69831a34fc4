import { MillraceError } from '../errors/index.ts'
import type { ResponseHeaders } from '../http/index.ts'
import { isNestedWithin } from '../kit/index.ts'
import {
  type CallRecord,
  isJsonList,
  isJsonObject,
  type Json,
  type JsonObject,
  maxOriginalDepth,
  type Message,
  type OriginalReply,
  type OtherPart,
  type Sampling,
} from '../schema/index.ts'
import type { BackendReply, ModelRequest, PartialReply, ReplyDelta, ReplyEvent } from './backend.ts'
import { malformedReply, notJson, type Source } from './errors/reply-errors.ts'
import type { TokenArrays } from './tokens/token-scanner.ts'

export interface DialectOptions {
  readonly source: Source
  /** The name that the model's replies are recorded under. Signed reasoning is sent back only to the model that wrote it. */
  readonly modelName: string
  readonly upstreamName: string
  /** Whether replies are streamed if the request does not say. */
  readonly stream: boolean
  readonly sendReasoning: boolean
  /** Whether the server is OpenAI itself, which differs from what its imitators accept in a few places. */
  readonly isOpenAi: boolean
  /** Whether the server is Mistral itself, which has reasoning in the content, and refuses it in a field beside. */
  readonly isMistral?: boolean
  /** Decides how tokens are asked for; if the engine is not known, in vLLM's way. */
  readonly engine?: EngineName | undefined
}

/** One way of asking a server for a turn: how the request is written and how the answer is read. */
export interface Dialect extends ReplyParser {
  /** The path below the API's base url. */
  readonly path: string
  render(request: ModelRequest): string
  /** The body for counting tokens only: all that makes the prompt, and nothing about the reply. */
  renderCounted(request: ModelRequest): string
}

export interface AnswerContext {
  readonly headers?: ResponseHeaders
  readonly messages?: readonly Message[]
  readonly choices?: number | undefined
  readonly keepsAborted?: boolean | undefined
}

export interface ReplyParser {
  /** Whether token ids are looked for in the bytes of answers, when they were asked for. */
  readonly hasTokens: boolean
  /** Whether each event of a stream repeats those before it: then only the length of one event is bounded, not their sum. */
  readonly repeatsItself?: boolean
  /** Reads a whole answer. `text` is its JSON, from which `tokens` may have been taken. Throws a coded error if it is no reply. */
  parse(body: unknown, context: AnswerContext, tokens?: TokenArrays, text?: string): BackendReply
  assemble(context: AnswerContext, wantsTokens: boolean): StreamAssembler
}

export interface StreamAssembler {
  /**
   * Takes the data of one server-sent event. Throws a coded error if the event is broken or an error report. A caller that
   * passes the reply on gives an `event`, which is filled in; without it nothing is made that only a sink needs.
   */
  onEvent(data: string, event?: EventDraft): void
  readonly hasOutput: boolean
  /** Whether the backend said how the answer ended. Only then is there a reply. */
  readonly isComplete: boolean
  reply(): BackendReply
  /** The reply so far, if every event was given a draft. Never throws: parts that make no sense yet are left out. */
  partial(): PartialReply
}

/** One event of a stream on its way to a sink, filled in by the assembler that reads it. */
export class EventDraft implements ReplyEvent {
  data: string
  document: object | undefined
  readonly deltas: ReplyDelta[] = []
  isEnd = false

  constructor(data: string) {
    this.data = data
  }

  /** Sets the parsed JSON and its text. Long lists of tokens may have been taken out of both. */
  parsed(document: object, data: string): void {
    this.document = document
    this.data = data
  }

  say(kind: 'content' | 'reasoning' | 'refusal', text: string): void {
    if (text !== '') this.deltas.push({ kind, text })
  }

  beginCall(index: number, { id, name }: { readonly id: string; readonly name: string }): void {
    this.deltas.push({ kind: 'tool-call', index, id, name })
  }

  sayArguments(index: number, text: string): void {
    if (text !== '') this.deltas.push({ kind: 'arguments', index, text })
  }
}

export function parseEvent(data: string, source: Source): JsonObject {
  let parsed: unknown
  try {
    parsed = JSON.parse(data)
  } catch {
    throw notJson(source, 'an event of the stream', data)
  }
  if (!isJsonObject(parsed)) throw malformedReply(source, 'an event of the stream is not a JSON object')
  return parsed
}

/**
 * The end of a request body, with a comma before it if not empty: what the sampling asks for, then `extra`, then the fields that
 * the reading of the reply depends on (`fixed`). `extra` cannot set `reserved` fields, which stand elsewhere in the body.
 */
export function samplingTail(
  asked: JsonObject,
  extra: Sampling['extra'],
  reserved: readonly string[],
  fixed: JsonObject = {},
): string {
  for (const key of reserved) refuseInExtra(extra, key)
  return fieldsJson({ ...asked, ...extra, ...fixed })
}

/** Fields at the end of a body. Begins with a comma if there are any. */
export function fieldsJson(fields: JsonObject): string {
  const json = JSON.stringify(fields)
  return json === '{}' ? '' : `,${json.slice(1, -1)}`
}

export function bodyField(name: string, json: string, extra: Sampling['extra']): string {
  refuseInExtra(extra, name)
  return `,"${name}":${json}`
}

/** Throws if `extra` sets a field that the body has: of two fields with one name, each server takes the one it likes. */
export function refuseInExtra(extra: Sampling['extra'], key: string): void {
  if (!extra || !Object.hasOwn(extra, key)) return
  const message = `sampling.extra cannot set "${key}": Millrace writes that itself. Remove it.`
  throw new MillraceError('config_invalid', message, { data: { param: key } })
}

/** Writes the JSON of values that never change, once each. An entry is dropped with its value. */
export function jsonCache<Value extends object>(write: (value: Value) => string): (value: Value) => string {
  const written = new WeakMap<Value, string>()
  return (value) => {
    let json = written.get(value)
    if (json === undefined) {
      json = write(value)
      written.set(value, json)
    }
    return json
  }
}

/** The JSON text of a message. It is written once, however often the message is sent, hashed and stored. */
export const messageJson = jsonCache((message: Message) => JSON.stringify(message))

const replies = new WeakMap<Message, { readonly model: string; readonly original: OriginalReply }>()

/** Keeps the original of the call's reply, if it is a signed one, with the message that was read from it. */
export function keepSignedReply(message: Message, { model, original }: Pick<CallRecord, 'model' | 'original'>): void {
  if (original) replies.set(message, { model, original })
}

/** The original reply of a message, if it is a signed one of this model: no other model could open it. */
export function signedReply(message: Message, model: string): OriginalReply | undefined {
  const found = replies.get(message)
  return found?.model === model ? found.original : undefined
}

/**
 * Whether a reply holds reasoning that is signed or encrypted. Its server takes such reasoning back only unchanged and in
 * its place; Anthropic's and Gemini's servers refuse to continue after a tool call without it.
 */
export function isSigned({ api, output }: OriginalReply): boolean {
  if (!isNestedWithin(maxOriginalDepth, output)) return false
  if (api === 'chat')
    return output.some((message) => signaturesIn(message).some((signature) => isJsonObject(signature)))
  const reasoning = output.filter(({ type }) => {
    return type === 'thinking' || type === 'redacted_thinking' || type === 'reasoning'
  })
  return reasoning.length > 0 && reasoning.every(hasSignature)
}

/** Whether reasoning carries its own content. Without a signature the server would look for the item in its store, in vain. */
function hasSignature({ type, signature, encrypted_content: encrypted }: JsonObject): boolean {
  const content = signature ?? encrypted
  return type === 'redacted_thinking' || (typeof content === 'string' && content !== '')
}

export function signaturesIn({ tool_calls: calls }: JsonObject): (Json | undefined)[] {
  if (!isJsonList(calls)) return []
  return calls.flatMap((call) => (isJsonObject(call) && call['custom'] === undefined ? [call['extra_content']] : []))
}

/** The API that a request is written in, and the server that it goes to. */
export interface RequestTarget {
  readonly api: 'Chat Completions' | 'Responses' | 'Messages'
  readonly source: Source
}

export function unsupportedError({ api, source }: RequestTarget, what: string, param: string): MillraceError {
  const step = 'Leave it out, or use a model with another API.'
  return new MillraceError(
    'model_rejected',
    `${what} is not supported by the ${api} API, which model ${source.model} uses. ${step}`,
    { data: { status: 400, param } },
  )
}

export function unsupportedPart(target: RequestTarget, { api, value }: OtherPart): MillraceError {
  return unsupportedError(target, `a part of the ${api} API (${nameOf(value)})`, 'messages')
}

function nameOf(value: unknown): string {
  return isJsonObject(value) && typeof value['type'] === 'string' ? value['type'] : 'without a type'
}

export type EngineName = 'vllm' | 'sglang'

/** The fields that ask a backend in Chat Completions for its tokens. */
export interface TokenRequest {
  readonly fields: JsonObject
  /** Whether the fields are allowed in a request for a stream. */
  readonly inStreams: boolean
}

const requests: Readonly<Record<EngineName, TokenRequest>> = {
  vllm: { fields: { logprobs: true, return_token_ids: true }, inStreams: true },
  // Ids and the version of the weights are in `meta_info`, which only whole replies have: SGLang refuses a stream that asks
  // for it. Newer versions can put ids into the last chunk of a stream, but not the version. A server that keeps no experts
  // ignores the field that asks for them.
  sglang: {
    fields: { logprobs: true, return_prompt_token_ids: true, return_meta_info: true, return_routed_experts: true },
    inStreams: false,
  },
}

/** The request for a model whose backends may run different engines: each engine ignores the fields of the others. */
export function tokenRequestOf(engines: readonly (EngineName | undefined)[]): TokenRequest {
  const distinct = new Set(engines.map((engine = 'vllm') => engine))
  const [only = 'vllm'] = distinct
  if (distinct.size <= 1) return requests[only]
  const all = Array.from(distinct, (engine) => requests[engine])
  return {
    fields: Object.assign({}, ...all.map(({ fields }) => fields)) as JsonObject,
    inStreams: all.every(({ inStreams }) => inStreams),
  }
}
