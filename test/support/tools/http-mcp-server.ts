import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { testCertificate, testCertificateKey } from '../inference/test-certificate.ts'
import { Resource } from '../../../src/kit/index.ts'

interface Message {
  readonly id?: number
  readonly method: string
  readonly params?: {
    readonly protocolVersion?: string
    readonly name?: string
    readonly arguments?: Readonly<Record<string, unknown>>
    readonly requestId?: number
  }
}

export interface HttpMcpServerOptions {
  /** How calls are answered: in a stream of their own, or as plain JSON. Streams if not given. */
  readonly answers?: 'stream' | 'json'
  /** Over TLS, with a certificate that only `testCertificate` vouches for. */
  readonly isSecure?: boolean
  /** Nobody who does not send this is let in. */
  readonly authorization?: string
  /** Whoever begins a session is answered with this. */
  readonly refuses?: { readonly status: number; readonly page: string }
  /** These instead of its tools, in one page. */
  readonly lists?: readonly unknown[]
  /** Each page of the list says that there is another: the same one over again, or always a new one. */
  readonly endlessList?: 'same' | 'new'
  /** Says that the list has changed while it is read for the first time; the next one has the tool `extra`. */
  readonly changesList?: boolean
  /** Any free port if not given. */
  readonly port?: number
  /** Nobody who begins a session is answered before this, as by a server that listens and still starts. */
  readonly ready?: Promise<void>
  /** A goodbye is never answered. */
  readonly isDeafToGoodbyes?: boolean
}

const tools = [
  { name: 'echo', inputSchema: { type: 'object' } },
  { name: 'look', inputSchema: { type: 'object' }, annotations: { readOnlyHint: true } },
  { name: 'hang', inputSchema: { type: 'object' } },
  { name: 'cut', inputSchema: { type: 'object' } },
  { name: 'flaky', inputSchema: { type: 'object' }, annotations: { readOnlyHint: true } },
  { name: 'linger', inputSchema: { type: 'object' } },
  { name: 'overload', inputSchema: { type: 'object' } },
  { name: 'interrupt', inputSchema: { type: 'object' } },
  { name: 'nonsense', inputSchema: { type: 'object' } },
  { name: 'disown', inputSchema: { type: 'object' } },
]

/** A server of Streamable HTTP, written by hand so that it can misbehave: its tools say how. */
export class HttpMcpServer extends Resource {
  readonly calls: string[] = []
  readonly cancelled: number[] = []
  readonly ended: string[] = []
  /** The ids of events after which streams were taken up again. */
  readonly resumed: string[] = []
  readonly #server: Server
  readonly #options: HttpMcpServerOptions
  readonly #sessions = new Map<string, ServerResponse | undefined>()
  /** Responses that nobody will end. */
  hanging = 0
  /** How many there were so far. */
  sockets = 0
  /** Every request is answered with this status, as a proxy does whose server is away. */
  gatewayStatus: number | undefined
  #started = 0
  #pages = 0
  #interrupted: Message | undefined
  /** Calls of `disown` that have no answer yet. */
  readonly #disowned: ServerResponse[] = []

  private constructor(options: HttpMcpServerOptions) {
    super()
    this.#options = options
    const answer = (request: IncomingMessage, response: ServerResponse) => void this.#answer(request, response)
    const certificate = { cert: testCertificate, key: testCertificateKey }
    this.#server = options.isSecure ? createTlsServer(certificate, answer) : createServer(answer)
    this.#server.on('connection', () => (this.sockets += 1))
  }

  static async start(options: HttpMcpServerOptions = {}): Promise<HttpMcpServer> {
    const server = new HttpMcpServer(options)
    await new Promise<void>((done) => server.#server.listen(options.port ?? 0, '127.0.0.1', done))
    return server
  }

  get url(): string {
    return `${this.#options.isSecure ? 'https' : 'http'}://127.0.0.1:${this.port}/mcp`
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port
  }

  get sessions(): number {
    return this.#sessions.size
  }

  /** Streams on which it could speak unasked. */
  get streams(): number {
    return [...this.#sessions.values()].filter((stream) => stream !== undefined).length
  }

  /** Forgets all sessions, as a restart would. */
  forget(): void {
    for (const stream of this.#sessions.values()) stream?.end()
    this.#sessions.clear()
  }

  /** Tells those who called `disown` that it does not know their session. */
  disown(): void {
    for (const response of this.#disowned.splice(0)) response.writeHead(404).end('no such session')
  }

  protected override async onClose(): Promise<void> {
    this.#server.closeAllConnections()
    await new Promise((done) => this.#server.close(done))
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { authorization } = this.#options
    if (this.gatewayStatus !== undefined) {
      response.writeHead(this.gatewayStatus).end('no upstream')
      return
    }
    if (authorization !== undefined && request.headers.authorization !== authorization) {
      response.writeHead(401).end(`who is ${String(request.headers.authorization)}?`)
      return
    }
    if (request.url === '/moved') {
      response.writeHead(307, { location: '/mcp' }).end()
      return
    }
    const session = String(request.headers['mcp-session-id'] ?? '')
    if (request.method === 'DELETE') {
      this.ended.push(session)
      this.#sessions.delete(session)
      if (!this.#options.isDeafToGoodbyes) response.writeHead(200).end()
    } else if (request.method === 'GET' && request.headers['last-event-id'] !== undefined) {
      this.resumed.push(String(request.headers['last-event-id']))
      this.#resume(response)
    } else if (request.method === 'GET' && this.#sessions.has(session)) {
      this.#sessions.set(session, response)
      response.writeHead(200, { 'content-type': 'text/event-stream' }).flushHeaders()
      response.on('close', () => this.#sessions.has(session) && this.#sessions.set(session, undefined))
    } else if (request.method === 'POST') {
      const message = await bodyOf(request)
      if (message.method === 'initialize') await this.#options.ready
      this.#post(session, message, response)
    } else response.writeHead(404).end('no such session')
  }

  #post(session: string, message: Message, response: ServerResponse): void {
    const { refuses } = this.#options
    if (message.method === 'initialize' && refuses) response.writeHead(refuses.status).end(refuses.page)
    else if (message.method === 'initialize') {
      this.#started += 1
      const name = `session-${this.#started}`
      this.#sessions.set(name, undefined)
      response.setHeader('mcp-session-id', name)
      const { protocolVersion } = message.params ?? {}
      const result = { protocolVersion, capabilities: { tools: {} }, serverInfo: { name: 'http', version: '1' } }
      this.#say(message, response, result)
    } else if (!this.#sessions.has(session)) {
      response.writeHead(404).end('no such session')
    } else if (message.id === undefined) {
      if (message.method === 'notifications/cancelled') this.cancelled.push(message.params?.requestId ?? 0)
      response.writeHead(202).end()
    } else if (message.method === 'tools/list') this.#list(message, response)
    else this.#call(session, message, response)
  }

  #list(message: Message, response: ServerResponse): void {
    const { endlessList, changesList, lists } = this.#options
    this.#pages += 1
    if (changesList) {
      this.#listChanging(message, response)
      return
    }
    if (lists) {
      this.#say(message, response, { tools: lists })
      return
    }
    const nextCursor = endlessList === 'new' ? `page-${this.#pages}` : 'page'
    this.#say(message, response, endlessList ? { tools, nextCursor } : { tools })
  }

  /** The first list comes so late that whoever asks again at once still waits for it. */
  #listChanging({ id }: Message, response: ServerResponse): void {
    const isFirst = this.#pages === 1
    const event = (message: object): string => `data: ${JSON.stringify({ jsonrpc: '2.0', ...message })}\n\n`
    const listed = isFirst ? tools : [...tools, { name: 'extra', inputSchema: { type: 'object' } }]
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    if (isFirst) response.write(event({ method: 'notifications/tools/list_changed' }))
    setTimeout(() => response.end(event({ id, result: { tools: listed } })), isFirst ? 150 : 0)
  }

  #call(session: string, message: Message, response: ServerResponse): void {
    const { name = '', arguments: given = {} } = message.params ?? {}
    this.calls.push(name)
    if (name === 'overload' && (given['once'] !== true || this.#isFirst(name))) {
      response.writeHead(429, { 'retry-after': `${Number(given['after'] ?? 0)}` }).end('slow down')
    } else if (name === 'flaky') {
      // The first time it breaks off; what it does then its arguments say.
      if (this.#isFirst(name)) response.destroy()
      else if (typeof given['status'] === 'number') response.writeHead(given['status']).end('no')
      else if (given['forget'] === true && session === 'session-1') response.writeHead(404).end('no such session')
      else this.#say(message, response, { content: [{ type: 'text', text: `in ${session}` }] })
    } else if (name === 'interrupt') {
      this.#interrupted = message
      const retry = typeof given['retry'] === 'number' ? `retry: ${given['retry']}\n` : ''
      response.writeHead(200, { 'content-type': 'text/event-stream' }).end(`${retry}id: event-1\ndata: \n\n`)
    } else if (name === 'hang' || name === 'cut' || name === 'linger') {
      response.writeHead(200, { 'content-type': 'text/event-stream' }).flushHeaders()
      const answer = { jsonrpc: '2.0', id: message.id, result: { content: [{ type: 'text', text: 'done' }] } }
      if (name === 'linger') response.write(`data: ${JSON.stringify(answer)}\n\n`)
      if (name === 'cut') response.end()
      else this.#hang(response)
    } else if (name === 'disown') {
      this.#disowned.push(response)
    } else if (name === 'nonsense') {
      response.writeHead(200, { 'content-type': 'application/json' }).end('<html>')
    } else
      this.#say(message, response, { content: [{ type: 'text', text: `${String(given['message'])} in ${session}` }] })
  }

  #isFirst(tool: string): boolean {
    return this.calls.indexOf(tool) === this.calls.lastIndexOf(tool)
  }

  /** The answer, after as many more breaks as the call asked for; none at all if it asked for that. */
  #resume(response: ServerResponse): void {
    const { id, params } = this.#interrupted ?? {}
    const { breaks = 0, hang = false } = params?.arguments ?? {}
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    if (hang === true) {
      response.flushHeaders()
      this.#hang(response)
    } else if (this.resumed.length <= Number(breaks)) response.end(': nothing yet\n\n')
    else {
      const answer = { jsonrpc: '2.0', id, result: { content: [{ type: 'text', text: 'resumed' }] } }
      response.end(`data: ${JSON.stringify(answer)}\n\n`)
    }
  }

  #hang(response: ServerResponse): void {
    this.hanging += 1
    response.on('close', () => (this.hanging -= 1))
  }

  #say({ id }: Message, response: ServerResponse, result: object): void {
    const json = JSON.stringify({ jsonrpc: '2.0', id, result })
    if (this.#options.answers === 'json') response.writeHead(200, { 'content-type': 'application/json' }).end(json)
    else response.writeHead(200, { 'content-type': 'text/event-stream' }).end(`event: message\ndata: ${json}\n\n`)
  }
}

async function bodyOf(request: IncomingMessage): Promise<Message> {
  const chunks: Buffer[] = []
  for await (const chunk of request) chunks.push(chunk as Buffer)
  return JSON.parse(Buffer.concat(chunks).toString()) as Message
}
