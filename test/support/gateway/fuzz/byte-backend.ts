import { Agent, type Dispatcher } from 'undici'
import type { Backend, BackendReply, BackendRequest } from '../../../../src/apis/backend.ts'
// The reading half of an HTTP backend, without its sockets: bytes can be fed to it far faster than over any.
import { BackendExchange } from '../../../../src/inference/backend/exchange.ts'
import { ChatDialect } from '../../../../src/apis/chat/write-request.ts'
import type { Dialect } from '../../../../src/apis/client-side.ts'
import { MessagesDialect } from '../../../../src/apis/messages/write-request.ts'
import { PromptMemory } from '../../../../src/inference/backend/prompt-memory.ts'
import { ResponsesDialect } from '../../../../src/apis/responses/write-request.ts'
import { Redaction } from '../../../../src/kit/text/secrets.ts'
import type { ApiName } from '../../../../src/schema/message.ts'

/** What a server answers to one request, byte for byte. */
export interface Feed {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  readonly pieces: readonly Buffer[]
  /** In order, with the connection broken, or not at all. */
  readonly end: 'end' | 'error' | 'silence'
}

const dialects = { chat: ChatDialect, responses: ResponsesDialect, messages: MessagesDialect }

/** Silence in a stream is found out soon, where a test wants to see it. */
const idleTimeoutMs = 5
const requestTimeoutMs = 40

/** A backend whose server is a list of bytes. */
export class ByteBackend implements Backend {
  readonly name: string
  readonly #dialect: Dialect
  readonly #feedFor: (request: BackendRequest, body: string) => Feed
  readonly #wire: ConstructorParameters<typeof BackendExchange>[0]
  readonly #shard = { dispatcher: new Agent(), busy: 0 }

  constructor(api: ApiName, feedFor: (request: BackendRequest, body: string) => Feed) {
    this.name = api
    this.#feedFor = feedFor
    const source = {
      backend: api,
      url: 'http://fed.invalid',
      model: api,
      apiKeyEnv: 'NONE',
      redaction: new Redaction([]),
    }
    this.#dialect = new dialects[api]({
      source,
      modelName: 'm',
      upstreamName: 'upstream',
      stream: false,
      sendReasoning: true,
      isOpenAi: false,
    })
    const limits = { idleTimeoutMs, requestTimeoutMs }
    this.#wire = { source, dialect: this.#dialect, ...limits, prompts: new PromptMemory(), lastByte: { at: 0 } }
  }

  /** Exchanges that have not given everything back. */
  get busy(): number {
    return this.#shard.busy
  }

  send(request: BackendRequest): Promise<BackendReply> {
    const { signal, sessionId, messages, sink, captureTokens: wantsTokens, body: given } = request
    return new Promise((resolve, reject) => {
      const body = given ?? this.#dialect.render(request)
      const feed = this.#feedFor(request, body.toString())
      const keepsRaw = given !== undefined
      const call = { signal, sessionId, messages, wantsTokens, sink, keepsRaw, shard: this.#shard, resolve, reject }
      new FedSocket(new BackendExchange(this.#wire, call), feed).start()
    })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#shard.dispatcher.destroy()
  }
}

/** Hands the bytes over as undici would: nothing after an abort, nothing while it is told to wait. */
class FedSocket implements Dispatcher.DispatchController {
  readonly #exchange: BackendExchange
  readonly #feed: Feed
  #next = 0
  #isFeeding = false
  aborted = false
  paused = false
  reason: Error | null = null

  constructor(exchange: BackendExchange, feed: Feed) {
    this.#exchange = exchange
    this.#feed = feed
  }

  start(): void {
    this.#exchange.onRequestStart(this)
    // An answer never comes before the request has been written.
    queueMicrotask(() => {
      if (this.aborted) return
      this.#exchange.onResponseStart(this, this.#feed.status, this.#feed.headers)
      this.#goOn()
    })
  }

  abort(reason: Error): void {
    this.aborted = true
    this.reason = reason
  }

  pause(): void {
    this.paused = true
  }

  resume(): void {
    this.paused = false
    this.#goOn()
  }

  #goOn(): void {
    if (this.#isFeeding) return
    this.#isFeeding = true
    const { pieces, end } = this.#feed
    while (!this.paused && !this.aborted && this.#next < pieces.length) {
      const piece = pieces[this.#next] as Buffer
      this.#next += 1
      this.#exchange.onResponseData(this, piece)
    }
    this.#isFeeding = false
    if (this.paused || this.aborted || this.#next < pieces.length) return
    if (end === 'end') this.#exchange.onResponseEnd()
    else if (end === 'error') this.#exchange.onResponseError(this, new Error('other side closed'))
  }
}
