import type { DialectRequest, ReplyStreamWriter, WireEvent } from '../dialects/index.ts'
import type { ReplyDelta } from '../inference/index.ts'
import type { ClientApi, TokenRecord } from '../schema/index.ts'
import { tokensOf, type Delivery } from './_simulator-answer.ts'
import type { StreamStep, StreamWriter } from './_simulated-api.ts'
import { firstChoice, markAborted, markVersion, withoutTokens } from './_reply-marks.ts'
import type { Sample } from './_sample.ts'
import type { TokenFieldWriter } from './_token-field-writer.ts'
import type { TokenGroup } from './_token-groups.ts'
import type { Token } from './_token-stream.ts'

interface ApiStreamOptions {
  readonly api: ClientApi
  readonly writer: ReplyStreamWriter
  readonly fields: TokenFieldWriter
  readonly asked: DialectRequest
  readonly delivery: Delivery
}

/** A streamed reply in one of the three APIs, with the imitated backend's token fields in each event. */
export class ApiStream implements StreamWriter {
  readonly #api: ClientApi
  readonly #writer: ReplyStreamWriter
  readonly #fields: TokenFieldWriter
  readonly #asked: DialectRequest
  readonly #delivery: Delivery
  readonly #tokens: readonly Token[]
  /** How many tokens the events so far told of. The tokens of a piece that makes no event are told with the next one. */
  #told = 0

  constructor({ api, writer, fields, asked, delivery }: ApiStreamOptions) {
    this.#api = api
    this.#writer = writer
    this.#fields = fields
    this.#asked = asked
    this.#delivery = delivery
    this.#tokens = tokensOf(delivery)
  }

  start(version: string | undefined): StreamStep {
    const events = this.#writer.start()
    const [first] = documentsOf(events)
    const choice = first && firstChoice(first)
    const promptIds = this.#record?.promptIds
    if (choice && promptIds) this.#fields.addPrompt(this.#asked, first, choice, promptIds)
    return { events: this.#stamped(events, version), deltas: [] }
  }

  group(group: TokenGroup, version: string | undefined): StreamStep {
    const delta = deltaOf(group, this.#delivery)
    const events = delta ? this.#writer.delta(delta) : []
    const choice = documentsOf(events).map(firstChoice).at(-1)
    if (choice) this.#tell(choice, group.to, version)
    return { events: this.#stamped(events, version), deltas: delta ? [delta] : [] }
  }

  end(sample: Sample): StreamStep {
    const version = sample.versions.at(-1)?.version
    const events = this.#writer.end(withoutTokens(sample.reply))
    const documents = documentsOf(events)
    const [first] = documents
    const choice = first && firstChoice(first)
    if (choice) {
      this.#tell(choice, sample.tokens.length, version)
      const experts = sample.reply.tokens?.routedExperts
      if (experts) this.#fields.addExperts(this.#asked, choice, experts, first)
    }
    if (sample.isAborted) for (const document of documents) markAborted(document)
    return { events: this.#stamped(events, version), deltas: [] }
  }

  get #record(): TokenRecord | undefined {
    return this.#delivery.reply.tokens
  }

  #tell(choice: Record<string, unknown>, to: number, version: string | undefined): void {
    const record = this.#record
    const from = this.#told
    this.#told = to
    if (!record || from === to) return
    this.#fields.addSampled(this.#asked, choice, { record, tokens: this.#tokens.slice(from, to), from }, version)
  }

  #stamped(events: readonly WireEvent[], version: string | undefined): readonly WireEvent[] {
    if (version !== undefined && this.#fields.hasVersions) {
      for (const document of documentsOf(events)) markVersion(this.#api, document, version)
    }
    return events
  }
}

function documentsOf(events: readonly WireEvent[]): Record<string, unknown>[] {
  return events.flatMap(({ data }) => (data === '[DONE]' ? [] : [data]))
}

function deltaOf({ part, call: index, text }: TokenGroup, { reply }: Delivery): ReplyDelta | undefined {
  if (part === 'content' || part === 'reasoning') return { kind: part, text }
  const call = reply.message.tool_calls?.[index]
  // A name that the token limit cut off belongs to no call.
  if (!call) return undefined
  return part === 'name' ? { kind: 'tool-call', index, id: call.id, name: text } : { kind: 'arguments', index, text }
}
