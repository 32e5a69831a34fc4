import { randomUUID } from 'node:crypto'
import type { ServerResponse } from 'node:http'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import {
  isInitializeRequest,
  type Server,
  WebStandardStreamableHTTPServerTransport,
} from '@modelcontextprotocol/server'
import type { FastifyError, FastifyReply, FastifyRequest } from 'fastify'
import { MillraceError } from '../../errors/index.ts'
import { AbortScope, onAbort, Resource, timerMs } from '../../kit/index.ts'
import { refuseUnrouted } from '../http/routes.ts'
import { HttpServer } from '../http/server.ts'
import { EnvironmentSession, mcpServer, type ServedTools } from './environment-session.ts'

const path = '/mcp'
const maxBodyBytes = 4 * 1024 * 1024
/** Each has a state of its own, whatever the environment's `setup` makes of that. */
const defaultMaxSessions = 64
const defaultIdleMs = 10 * 60_000

/** JSON-RPC's codes for what a server refuses in its own words, and for a session it does not know. */
const refused = -32_000
const unknownSession = -32_001

export interface HttpToolServerOptions {
  readonly tools: ServedTools
  readonly version: string
  readonly port: number
  /** Sessions at once; 64 if not given. A client beyond them is told to come again. */
  readonly maxSessions?: number
  /** A session that nobody uses for this long ends; 10 minutes if not given. */
  readonly idleMs?: number
  readonly onFault: (error: unknown) => void
}

/** An environment's tools over Streamable HTTP, for clients on this machine; each session has a state of its own. */
export class HttpToolServer extends HttpServer {
  readonly #options: HttpToolServerOptions
  readonly #sessions = new Map<string, HttpSession>()
  readonly #maxSessions: number
  readonly #opening = new Set<Promise<HttpSession | Response>>()

  private constructor(options: HttpToolServerOptions) {
    // Whoever can call tools can do what they do, so only this machine is let in.
    super('127.0.0.1', {
      isKeyless: true,
      refusalBody: ({ message }) => JSON.stringify({ jsonrpc: '2.0', error: { code: refused, message }, id: null }),
    })
    this.#options = options
    this.#maxSessions = options.maxSessions ?? defaultMaxSessions
    const { app } = this
    app.setNotFoundHandler(async (request, reply) => {
      return await refuseUnrouted(
        reply,
        this.knownRoutes.unrouted(request, () => `MCP is at ${path}`),
      )
    })
    app.setErrorHandler<FastifyError>(async (error, _request, reply) => {
      const { statusCode = 500, message } = error
      if (statusCode >= 500) options.onFault(error)
      return await reply.code(statusCode).send({ jsonrpc: '2.0', error: { code: refused, message }, id: null })
    })
    app.route({
      method: ['GET', 'POST', 'DELETE'],
      url: path,
      bodyLimit: maxBodyBytes,
      handler: async (request, reply) => await this.#answer(request, reply),
    })
  }

  static async open(options: HttpToolServerOptions): Promise<HttpToolServer> {
    const httpServer = new HttpToolServer(options)
    await httpServer.listen(options.port, '--http (port)')
    return httpServer
  }

  override get url(): string {
    return `${super.url}${path}`
  }

  get sessions(): number {
    return this.#sessions.size
  }

  protected override async onClose(): Promise<void> {
    // Their streams of events would otherwise keep the HTTP server open.
    await Promise.all([...Array.from(this.#sessions.values(), (session) => session.end()), ...this.#opening])
    await super.onClose()
  }

  async #answer(request: FastifyRequest, reply: FastifyReply): Promise<void> {
    const asked = webRequest(request)
    reply.hijack()
    const send = (response: Response): Promise<void> => sendWebResponse(response, reply.raw)
    const { body } = request
    const id = asked.headers.get('mcp-session-id')
    const session = id === null ? await this.#opened(body, reply) : this.#sessions.get(id)
    if (session instanceof Response) return await send(session)
    if (!session) return await send(refusal(404, unknownSession, 'there is no such session, or it has ended'))
    await session.answer({ request: asked, body }, send)
  }

  #opened(body: unknown, reply: FastifyReply): Response | Promise<HttpSession | Response> {
    if (!isInitializeRequest(body)) {
      return refusal(
        400,
        refused,
        'begin with `initialize`, and then send the mcp-session-id of its reply with each request',
      )
    }
    if (this.#sessions.size + this.#opening.size >= this.#maxSessions) {
      return refusal(
        503,
        refused,
        `there are ${this.#maxSessions} sessions, which is the limit; end one, or try again later`,
      )
    }
    const opening = this.#open(reply).finally(() => this.#opening.delete(opening))
    this.#opening.add(opening)
    return opening
  }

  /** Never rejects. Whoever has gone, or finds the HTTP server closing, leaves nothing behind when it resolves. */
  async #open(reply: FastifyReply): Promise<HttpSession | Response> {
    const { tools, version, idleMs = defaultIdleMs, onFault } = this.#options
    using scope = new AbortScope(this.closedSignal)
    const onGone = (): void => scope.abort(new MillraceError('cancelled', 'the client has gone'))
    reply.raw.once('close', onGone)
    try {
      const session = await HttpSession.open({ tools, version, idleMs, onFault, signal: scope.signal })
      if (this.isClosed) {
        await session.end()
        throw this.closedSignal.reason
      }
      this.#sessions.set(session.id, session)
      onAbort(session.closedSignal, { handleEvent: () => void this.#sessions.delete(session.id) })
      return session
    } catch (error) {
      return refusal(500, refused, MillraceError.from(error, 'setup_failed').rawMessage)
    } finally {
      reply.raw.off('close', onGone)
    }
  }
}

interface HttpSessionOptions {
  readonly tools: ServedTools
  readonly version: string
  readonly idleMs: number
  readonly signal: AbortSignal
  readonly onFault: (error: unknown) => void
}

/** One client of the HTTP server: its session, and the SDK's end of the connection. Closes itself when nobody asked for anything for long. */
class HttpSession extends Resource {
  readonly id: string
  readonly #session: EnvironmentSession
  readonly #server: Server
  readonly #transport: WebStandardStreamableHTTPServerTransport
  readonly #options: HttpSessionOptions
  #exchanges = 0
  #idle: NodeJS.Timeout | undefined

  private constructor(id: string, session: EnvironmentSession, options: HttpSessionOptions) {
    super()
    this.id = id
    this.#session = session
    this.#options = options
    this.#server = mcpServer(session, options.version)
    this.#transport = new WebStandardStreamableHTTPServerTransport({
      sessionIdGenerator: () => id,
      onsessionclosed: () => this.end(),
    })
  }

  static async open(options: HttpSessionOptions): Promise<HttpSession> {
    const id = randomUUID()
    const session = await EnvironmentSession.open(options.tools, { id, signal: options.signal })
    const made = new HttpSession(id, session, options)
    try {
      await made.#server.connect(made.#transport)
      return made
    } catch (error) {
      await made.close()
      throw error
    }
  }

  async answer(
    { request, body }: { readonly request: Request; readonly body: unknown },
    send: (response: Response) => Promise<void>,
  ): Promise<void> {
    this.#exchanges += 1
    clearTimeout(this.#idle)
    try {
      await send(await this.#transport.handleRequest(request, { parsedBody: body }))
    } finally {
      this.#exchanges -= 1
      this.#watchIdle()
    }
  }

  /** Closes; a `teardown` that fails is nobody's answer. */
  async end(): Promise<void> {
    await this.close().catch(this.#options.onFault)
  }

  protected async onClose(): Promise<void> {
    clearTimeout(this.#idle)
    await using parts = new AsyncDisposableStack()
    parts.use(this.#session)
    parts.defer(() => this.#server.close())
  }

  #watchIdle(): void {
    if (this.isClosed || this.#exchanges > 0) return
    this.#idle = setTimeout(() => void this.end(), timerMs(this.#options.idleMs))
  }
}

/** A request as the SDK wants it: the body, which was read already, is handed over beside it. */
function webRequest({ method, url, headers }: FastifyRequest): Request {
  const copied = new Headers()
  for (const [name, value] of Object.entries(headers)) {
    for (const each of typeof value === 'string' ? [value] : (value ?? [])) copied.append(name, each)
  }
  return new Request(new URL(url, 'http://localhost'), { method, headers: copied })
}

/** Sends what the SDK answers, which may be a stream of events. Ends when it has been sent, or the client has gone. */
async function sendWebResponse(response: Response, reply: ServerResponse): Promise<void> {
  reply.writeHead(response.status, Object.fromEntries(response.headers))
  if (!response.body) {
    reply.end()
    return
  }
  // A stream on which nothing happens for a while must still be seen to have begun.
  reply.flushHeaders()
  // A client that goes away in the middle is no fault: the stream is cancelled, and that is all.
  await pipeline(Readable.fromWeb(response.body), reply).catch(() => {})
}

function refusal(status: number, code: number, message: string): Response {
  return Response.json({ jsonrpc: '2.0', error: { code, message }, id: null }, { status })
}
