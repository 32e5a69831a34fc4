import {
  type BackendReply,
  type DialectError,
  type DialectRequest,
  readWhole,
  type ReplyDelta,
  type ReplyHead,
  type ReplyStreamWriter,
  type ServerDialect,
  type ServerSentEvent,
} from '../../apis/index.ts'
import { MillraceError } from '../../errors/index.ts'
import type { ClientApi, JsonObject, Sampling, TokenRecord } from '../../schema/index.ts'
import { type Delivery, type Sample, type TokenGroup, tokensOf } from '../engine/paced-reply.ts'
import type { SimulatorRequest, Token } from '../engine/tokens.ts'
import type { TokenFieldWriter } from './token-fields.ts'

export interface SimulatedApi {
  readonly name: ClientApi
  read(body: JsonObject): ApiRequest
  error(error: MillraceError): DialectError
  streamError(error: MillraceError): ServerSentEvent
}

export interface ApiRequest {
  readonly model: string | undefined
  readonly wantsStream: boolean
  readonly requestName: string | undefined
  readonly request: SimulatorRequest
  replyId(delivery: Delivery): string
  whole(delivery: Delivery, sample: Sample): Record<string, unknown>
  stream(delivery: Delivery): StreamWriter
}

export interface StreamStep {
  readonly events: readonly ServerSentEvent[]
  readonly deltas: readonly ReplyDelta[]
}

/** Writes one reply in pieces; `version` is the weights' version of the tokens in the piece. */
export interface StreamWriter {
  start(version: string | undefined): StreamStep
  group(group: TokenGroup, version: string | undefined): StreamStep
  end(sample: Sample): StreamStep
}

export class DialectApi implements SimulatedApi {
  readonly #dialect: ServerDialect
  readonly #fields: TokenFieldWriter

  constructor(dialect: ServerDialect, fields: TokenFieldWriter) {
    this.#dialect = dialect
    this.#fields = fields
  }

  get name(): ClientApi {
    return this.#dialect.api
  }

  read(body: JsonObject): ApiRequest {
    const asked = readWhole(this.#dialect, body)
    if (asked.choices !== undefined) {
      const message = 'n must be 1: send several requests, one for each reply'
      throw new MillraceError('model_rejected', message, { data: { status: 400, param: 'n' } })
    }
    const refusal = this.name === 'chat' ? this.#fields.refusal?.(asked) : undefined
    if (refusal) {
      throw new MillraceError('model_rejected', refusal.message, { data: { status: 400, param: refusal.param } })
    }
    return new DialectApiRequest(this.#dialect, this.#fields, asked)
  }

  error(error: MillraceError): DialectError {
    return this.#dialect.error(error)
  }

  streamError(error: MillraceError): ServerSentEvent {
    return this.#dialect.streamError(error)
  }
}

const idPrefixes: Readonly<Record<ClientApi, string>> = {
  chat: 'chatcmpl-',
  responses: 'resp_',
  messages: 'msg_',
  generate: '',
}

export class DialectApiRequest implements ApiRequest {
  readonly request: SimulatorRequest
  readonly requestName: string | undefined
  readonly #dialect: ServerDialect
  readonly #fields: TokenFieldWriter
  readonly #asked: DialectRequest

  constructor(dialect: ServerDialect, fields: TokenFieldWriter, asked: DialectRequest) {
    this.#dialect = dialect
    this.#fields = fields
    this.#asked = asked
    const { messages, tools, toolChoice, responseFormat, parallelToolCalls, body } = asked
    this.request = {
      messages,
      tools,
      ...(toolChoice !== undefined && { toolChoice }),
      ...(responseFormat && { responseFormat }),
      ...(parallelToolCalls !== undefined && { parallelToolCalls }),
      sampling: seeded(asked.sampling, body),
      captureTokens: fields.isAsked(asked),
    }
    const name = body['request_id'] ?? body['rid']
    this.requestName = typeof name === 'string' ? name : undefined
  }

  get model(): string {
    return this.#asked.model
  }

  get wantsStream(): boolean {
    return this.#asked.stream
  }

  replyId(delivery: Delivery): string {
    return idPrefixes[this.#dialect.api] + delivery.id
  }

  whole(delivery: Delivery, sample: Sample): Record<string, unknown> {
    const { api } = this.#dialect
    const document = this.#dialect.whole(this.#head(delivery), withoutTokens(sample.reply))
    const version = sample.versions[0]?.version
    const choice = firstChoice(document)
    const { tokens: record } = sample.reply
    if (choice && record) {
      if (record.promptIds) this.#fields.addPrompt(this.#asked, document, choice, record.promptIds)
      this.#fields.addSampled(this.#asked, choice, { record, tokens: sample.tokens, from: 0 }, version)
      if (record.routedExperts) this.#fields.addExperts(this.#asked, choice, record.routedExperts, document)
    }
    if (this.#fields.hasVersions && version !== undefined) markVersion(api, document, version)
    if (sample.isAborted) markAborted(document)
    return document
  }

  stream(delivery: Delivery): StreamWriter {
    const writer = this.#dialect.stream(this.#head(delivery))
    return new ApiStream({ api: this.#dialect.api, writer, fields: this.#fields, asked: this.#asked, delivery })
  }

  #head(delivery: Delivery): ReplyHead {
    const createdAt = Math.floor(Date.now() / 1000)
    return { id: this.replyId(delivery), model: this.model, createdAt, request: this.#asked }
  }
}

/** Two of the APIs have no field for a seed; a client may send `seed` all the same. */
function seeded(sampling: Sampling, { seed }: JsonObject): Sampling {
  return typeof seed === 'number' ? { ...sampling, seed } : sampling
}

interface ApiStreamOptions {
  readonly api: ClientApi
  readonly writer: ReplyStreamWriter
  readonly fields: TokenFieldWriter
  readonly asked: DialectRequest
  readonly delivery: Delivery
}

class ApiStream implements StreamWriter {
  readonly #options: ApiStreamOptions
  readonly #tokens: readonly Token[]
  /** How many tokens the events so far reported. The tokens of a piece that makes no event are reported with the next one. */
  #reported = 0

  constructor(options: ApiStreamOptions) {
    this.#options = options
    this.#tokens = tokensOf(options.delivery)
  }

  start(version: string | undefined): StreamStep {
    const events = this.#options.writer.start()
    const [first] = documentsOf(events)
    const choice = first && firstChoice(first)
    const promptIds = this.#record?.promptIds
    if (choice && promptIds) this.#options.fields.addPrompt(this.#options.asked, first, choice, promptIds)
    return { events: this.#stamped(events, version), deltas: [] }
  }

  group(group: TokenGroup, version: string | undefined): StreamStep {
    const delta = deltaOf(group, this.#options.delivery)
    const events = delta ? this.#options.writer.delta(delta) : []
    const choice = documentsOf(events).map(firstChoice).at(-1)
    if (choice) this.#report(choice, group.to, version)
    return { events: this.#stamped(events, version), deltas: delta ? [delta] : [] }
  }

  end(sample: Sample): StreamStep {
    const version = sample.versions.at(-1)?.version
    const events = this.#options.writer.end(withoutTokens(sample.reply))
    const documents = documentsOf(events)
    const [first] = documents
    const choice = first && firstChoice(first)
    if (choice) {
      this.#report(choice, sample.tokens.length, version)
      const experts = sample.reply.tokens?.routedExperts
      if (experts) this.#options.fields.addExperts(this.#options.asked, choice, experts, first)
    }
    if (sample.isAborted) for (const document of documents) markAborted(document)
    return { events: this.#stamped(events, version), deltas: [] }
  }

  get #record(): TokenRecord | undefined {
    return this.#options.delivery.reply.tokens
  }

  #report(choice: Record<string, unknown>, to: number, version: string | undefined): void {
    const record = this.#record
    const from = this.#reported
    this.#reported = to
    if (!record || from === to) return
    this.#options.fields.addSampled(
      this.#options.asked,
      choice,
      { record, tokens: this.#tokens.slice(from, to), from },
      version,
    )
  }

  #stamped(events: readonly ServerSentEvent[], version: string | undefined): readonly ServerSentEvent[] {
    if (version !== undefined && this.#options.fields.hasVersions) {
      for (const document of documentsOf(events)) markVersion(this.#options.api, document, version)
    }
    return events
  }
}

function documentsOf(events: readonly ServerSentEvent[]): Record<string, unknown>[] {
  return events.flatMap(({ data }) => (data === '[DONE]' ? [] : [data]))
}

function deltaOf({ part, call: index, text }: TokenGroup, { reply }: Delivery): ReplyDelta | undefined {
  if (part === 'content' || part === 'reasoning') return { kind: part, text }
  const call = reply.message.tool_calls?.[index]
  // A name that the token limit cut off belongs to no call.
  if (!call) return undefined
  return part === 'name' ? { kind: 'tool-call', index, id: call.id, name: text } : { kind: 'arguments', index, text }
}

type Document = Record<string, unknown>

function firstChoice({ choices }: Document): Document | undefined {
  const first: unknown = Array.isArray(choices) ? choices[0] : undefined
  return isDocument(first) ? first : undefined
}

/** Removes the tokens: the token fields of the imitated backend decide which of them a client sees, and how. */
export function withoutTokens({ tokens: _left, ...reply }: BackendReply): BackendReply {
  return reply
}

/** Marks a reply that the engine ended: where an API names the reason of an end, it becomes `abort`. */
function markAborted(document: Document): void {
  const choice = firstChoice(document)
  if (typeof choice?.['finish_reason'] === 'string') choice['finish_reason'] = 'abort'
  for (const holder of [document, document['response'], document['delta']]) {
    if (!isDocument(holder)) continue
    if (typeof holder['stop_reason'] === 'string') holder['stop_reason'] = 'abort'
    if (isDocument(holder['incomplete_details'])) holder['incomplete_details'] = { reason: 'abort' }
  }
}

/** Puts the weights' version where SGLang puts it. Anthropic's API has no place for it. */
function markVersion(api: ClientApi, document: Document, version: string): void {
  if (api === 'messages') return
  const holder = api === 'responses' && isDocument(document['response']) ? document['response'] : document
  const { metadata } = holder
  holder['metadata'] = { ...(isDocument(metadata) ? metadata : {}), weight_version: version }
}

function isDocument(value: unknown): value is Document {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
