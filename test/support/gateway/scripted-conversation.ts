import type { Dispatcher } from 'undici'
import { type Json, type JsonObject, type Message, textOf } from '../../../src/schema/index.ts'
import { readEvents, readObject } from './stream-events.ts'
import type { ApiClient, Received } from './api-clients.ts'

/** One step of a conversation: what is sent for it, and what it says in words that are the same for all APIs. */
interface Step {
  readonly items: readonly Json[]
  readonly said: readonly string[]
  /** Of what a model said. */
  readonly received?: Received
}

/** A gateway as a client reaches it. */
export interface OpenToAsk {
  open(
    path: string,
    ask: {
      readonly method?: 'GET' | 'POST'
      readonly body?: unknown
      readonly key?: string
      readonly headers?: Record<string, string>
    },
  ): Promise<Dispatcher.ResponseData>
}

export interface TalkOptions {
  readonly model?: string
  readonly system?: string
  readonly tools?: boolean
}

export interface Asking {
  readonly stream: boolean
  readonly seed?: number
  /** How often the client says that it sent this before. */
  readonly retry?: number
  /** Called with every piece of a stream. */
  readonly onPiece?: (piece: string) => void
}

/** One client's conversation in one session of a gateway, kept and sent as its API wants it. */
export class Talk {
  readonly apiClient: ApiClient
  readonly #gateway: OpenToAsk
  readonly #key: string
  readonly #options: TalkOptions
  #steps: Step[] = []

  constructor(gateway: OpenToAsk, { key }: { readonly key: string }, apiClient: ApiClient, options: TalkOptions = {}) {
    this.#gateway = gateway
    this.#key = key
    this.apiClient = apiClient
    this.#options = options
  }

  get length(): number {
    return this.#steps.length
  }

  /** Everything said so far. */
  get said(): string[] {
    const { system } = this.#options
    return [...(system === undefined ? [] : [`system: ${system}`]), ...this.#steps.flatMap(({ said }) => said)]
  }

  /** The tool calls that wait for their results. */
  get openCalls(): Received['calls'] {
    return this.#steps.at(-1)?.received?.calls ?? []
  }

  user(text: string, image?: string): void {
    const said = `user: ${text}${image === undefined ? '' : ' <image>'}`
    this.#steps.push({ items: this.apiClient.user(text, image), said: [said] })
  }

  results(texts: readonly string[]): void {
    const results = this.openCalls.map(({ id }, index) => ({ id, text: texts[index] ?? '' }))
    this.#steps.push({
      items: this.apiClient.results(results),
      said: results.map(({ id, text }) => `tool ${id}: ${text}`),
    })
  }

  take(received: Received): void {
    this.#steps.push({ items: received.items, said: [saidBy(received)], received })
  }

  /** Forgets the last steps. */
  back(count: number): void {
    this.#steps = this.#steps.slice(0, Math.max(0, this.#steps.length - count))
  }

  /** Says something else where a user spoke; what followed stays as it was. */
  rewrite(index: number, text: string): void {
    this.#steps = this.#steps.with(index, { items: this.apiClient.user(text), said: [`user: ${text}`] })
  }

  /** The steps in which a user speaks. */
  userSteps(): number[] {
    return this.#steps.flatMap(({ said }, index) => (said[0]?.startsWith('user: ') ? [index] : []))
  }

  /** The same conversation with another gateway. */
  movedTo(gateway: OpenToAsk): Talk {
    const copy = new Talk(gateway, { key: this.#key }, this.apiClient, this.#options)
    copy.#steps = [...this.#steps]
    return copy
  }

  body({ stream, seed }: Asking): JsonObject {
    const items = this.#steps.flatMap(({ items: each }) => each)
    return this.apiClient.body(items, { ...this.#options, stream, ...(seed !== undefined && { seed }) })
  }

  /** Asks for a reply and hears it to its end. It is not part of the conversation before it is taken. */
  async ask(asking: Asking): Promise<Received> {
    const { statusCode, body } = await this.send(asking)
    if (!asking.stream || statusCode !== 200) {
      const text = await body.text()
      if (statusCode !== 200) throw new Error(`${statusCode} ${text}`)
      return this.apiClient.received(readObject(text))
    }
    let text = ''
    for await (const piece of body.setEncoding('utf8') as AsyncIterable<string>) {
      text += piece
      asking.onPiece?.(piece)
    }
    return this.apiClient.receivedStream(readEvents(text))
  }

  async send(asking: Asking): Promise<Dispatcher.ResponseData> {
    const { retry = 0 } = asking
    return await this.#gateway.open(this.apiClient.path, {
      body: this.body(asking),
      key: this.#key,
      headers: retry === 0 ? {} : { 'x-stainless-retry-count': String(retry) },
    })
  }
}

export function saidBy({ text, calls }: Pick<Received, 'text' | 'calls'>): string {
  return `assistant: ${text}${calls.map((call) => ` [${call.id} ${call.name} ${call.arguments}]`).join('')}`
}

/** The same words for a message of an export. */
export function saidIn(message: Message): string {
  if (message.role === 'assistant') {
    const calls = (message.tool_calls ?? []).map(({ id, function: { name, arguments: written } }) => ({
      id,
      name,
      arguments: written,
    }))
    return saidBy({ text: message.content ?? '', calls })
  }
  if (message.role === 'tool') return `tool ${message.tool_call_id}: ${textOf(message)}`
  const parts = typeof message.content === 'string' ? [] : message.content
  return `${message.role}: ${textOf(message)}${parts.some(({ type }) => type === 'image_url') ? ' <image>' : ''}`
}
