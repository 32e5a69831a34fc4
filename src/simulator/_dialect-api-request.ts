import type { DialectRequest, ReplyHead, ServerDialect } from '../dialects/index.ts'
import type { ClientApi, JsonObject, Sampling } from '../schema/index.ts'
import type { Delivery } from './_simulator-answer.ts'
import { ApiStream } from './_api-stream.ts'
import type { ApiRequest, SimulatorRequest, StreamWriter } from './_simulated-api.ts'
import { firstChoice, markAborted, markVersion, withoutTokens } from './_reply-marks.ts'
import type { Sample } from './_sample.ts'
import type { TokenFieldWriter } from './_token-field-writer.ts'

const idPrefixes: Readonly<Record<ClientApi, string>> = {
  chat: 'chatcmpl-',
  responses: 'resp_',
  messages: 'msg_',
  generate: '',
}

/** A request in one of the three APIs that have a dialect. */
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
    const { api } = this.#dialect
    const writer = this.#dialect.stream(this.#head(delivery))
    return new ApiStream({ api, writer, fields: this.#fields, asked: this.#asked, delivery })
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
