import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import { text } from 'node:stream/consumers'

export interface ServedRequest {
  readonly method: string
  readonly path: string
  readonly headers: IncomingMessage['headers']
  readonly body: string
  /** Resolves when the connection under it is gone. */
  readonly closed: Promise<void>
}

export type Handler = (response: ServerResponse, request: ServedRequest) => unknown

/** A real HTTP server on a free port that answers as a test says and remembers what it was asked. */
export class ScriptedServer implements AsyncDisposable {
  readonly requests: ServedRequest[] = []
  readonly #server: Server
  readonly #closings = new WeakMap<Socket, Promise<void>>()
  #waiters: { count: number; resolve: () => void }[] = []

  private constructor(server: Server) {
    this.#server = server
  }

  static async start(handler: Handler): Promise<ScriptedServer> {
    const server = createServer()
    const scripted = new ScriptedServer(server)
    server.on('request', (incoming: IncomingMessage, response: ServerResponse) => {
      void scripted.#serve(incoming, response, handler)
    })
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    return scripted
  }

  get origin(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`
  }

  get url(): string {
    return `${this.origin}/v1`
  }

  /** Resolves when this many requests have arrived. */
  async received(count: number): Promise<void> {
    if (this.requests.length >= count) return
    await new Promise<void>((resolve) => this.#waiters.push({ count, resolve }))
  }

  openConnections(): Promise<number> {
    return new Promise((resolve, reject) => {
      this.#server.getConnections((error, count) => (error ? reject(error) : resolve(count)))
    })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections()
    await new Promise((resolve) => this.#server.close(resolve))
  }

  async #serve(incoming: IncomingMessage, response: ServerResponse, handler: Handler): Promise<void> {
    const { socket } = incoming
    const closed = this.#closings.get(socket) ?? new Promise<void>((resolve) => socket.once('close', () => resolve()))
    this.#closings.set(socket, closed)
    const request: ServedRequest = {
      method: incoming.method ?? '',
      path: incoming.url ?? '',
      headers: incoming.headers,
      body: await text(incoming).catch(() => ''),
      closed,
    }
    this.requests.push(request)
    this.#waiters = this.#waiters.filter(({ count, resolve }) => {
      if (this.requests.length < count) return true
      resolve()
      return false
    })
    await handler(response, request)
  }
}

export function sendJson(response: ServerResponse, body: unknown, status = 200): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body))
}

/** A whole Chat Completions reply. */
export function chatReply(content: string, more: object = {}): object {
  return {
    id: 'chatcmpl-1',
    object: 'chat.completion',
    model: 'm',
    choices: [{ index: 0, message: { role: 'assistant', content }, finish_reason: 'stop' }],
    usage: { prompt_tokens: 7, completion_tokens: 3, total_tokens: 10 },
    ...more,
  }
}

/** One chunk of a Chat Completions stream. */
export function chatChunk(delta: object, finishReason: string | null = null): string {
  return `data: ${JSON.stringify({ object: 'chat.completion.chunk', choices: [{ index: 0, delta, finish_reason: finishReason }] })}\n\n`
}
