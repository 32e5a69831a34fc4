import type { ServerResponse } from 'node:http'
import type { ClientApi } from '../schema/index.ts'
import type { ClientReply } from './client-reply.ts'

interface ReplyContext {
  readonly api: ClientApi
  readonly requestId: string
  readonly maxStallMs: number
}

/** The reply to one request over HTTP. */
export class HttpReply implements ClientReply {
  readonly #response: ServerResponse
  readonly #context: ReplyContext
  #state: 'waiting' | 'streaming' | 'ended' | 'gone' = 'waiting'
  #listener: (() => void) | undefined
  #resume: (() => void) | undefined

  constructor(response: ServerResponse, context: ReplyContext) {
    this.#response = response
    this.#context = context
    // It may have gone while its body was being read.
    if (response.destroyed) this.#state = 'gone'
    else response.once('close', this.#onClose)
  }

  get isGone(): boolean {
    return this.#state === 'gone'
  }

  onGone(listener: (() => void) | undefined): void {
    this.#listener = listener
  }

  whole(status: number, headers: Readonly<Record<string, string>>, body: string): void {
    if (this.#state !== 'waiting') return
    this.#state = 'ended'
    this.#writeHead(status, {
      'content-type': 'application/json',
      'content-length': String(Buffer.byteLength(body)),
      ...headers,
    })
    this.#response.end(body)
    this.#boundRest()
  }

  beginStream(headers: Readonly<Record<string, string>>): void {
    if (this.#state !== 'waiting') return
    this.#state = 'streaming'
    this.#response.on('drain', this.#onDrain)
    this.#writeHead(200, {
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-cache',
      // A proxy that gathers a reply before it passes it on would undo all of this.
      'x-accel-buffering': 'no',
      ...headers,
    })
    this.#response.flushHeaders()
  }

  write(text: string, resume: () => void): boolean {
    // Whoever has gone needs no waiting for.
    if (this.#state !== 'streaming' || text === '' || this.#response.write(text)) return true
    if (!this.#resume) this.#response.setTimeout(this.#context.maxStallMs)
    this.#resume = resume
    return false
  }

  endStream(): void {
    if (this.#state !== 'streaming') return
    this.#state = 'ended'
    this.#response.off('drain', this.#onDrain)
    this.#response.end()
    this.#boundRest()
  }

  /** A client may still have most of the reply to take: without a bound it could keep us waiting, and holding it, for ever. */
  #boundRest(): void {
    // Ends when nothing moves for so long: a large reply may take longer in all. Node sets its own when all has gone.
    if (this.#response.writableLength > 0) this.#response.setTimeout(this.#context.maxStallMs)
  }

  #writeHead(status: number, headers: Record<string, string>): void {
    const { api, requestId } = this.#context
    headers['x-request-id'] = requestId
    // Where Anthropic's clients look for it.
    if (api === 'messages') headers['request-id'] = requestId
    this.#response.writeHead(status, headers)
  }

  readonly #onDrain = (): void => {
    this.#response.setTimeout(0)
    const resume = this.#resume
    this.#resume = undefined
    resume?.()
  }

  readonly #onClose = (): void => {
    if (this.#state === 'ended') return
    this.#state = 'gone'
    this.#listener?.()
  }
}
