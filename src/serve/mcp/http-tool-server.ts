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
import { AbortScope, IdleResources, Resource } from '../../kit/index.ts'
import type { EnvironmentSession } from '../../rollout/index.ts'
import { refuseUnrouted } from '../http/routes.ts'
import { HttpServer } from '../http/server.ts'
import { mcpServer, type ServedTools } from './served-tools.ts'

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
  readonly #sessions: IdleResources<HttpSession>

  private constructor(options: HttpToolServerOptions) {
    // Whoever can call tools can do what they do, so only this machine is let in.
    super('127.0.0.1', {
      isKeyless: true,
      refusalBody: ({ message }) => JSON.stringify({ jsonrpc: '2.0', error: { code: refused, message }, id: null }),
    })
    this.#options = options
    const { maxSessions: max = defaultMaxSessions, idleMs = defaultIdleMs, onFault } = options
    this.#sessions = new IdleResources({ max, idleMs, onFault })
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
    await this.#sessions.close()
    await super.onClose()
  }

  async #answer(request: FastifyRequest, reply: FastifyReply): Promise<void> {
    const asked = webRequest(request)
    reply.hijack()
    const send = (response: Response): Promise<void> => sendWebResponse(response, reply.raw)
    const { body } = request
    const id = asked.headers.get('mcp-session-id')
    const opened = id === null ? await this.#opened(body, reply) : id
    if (opened instanceof Response) return await send(opened)
    const answered = this.#sessions.use(opened, (session) => session.answer({ request: asked, body }, send))
    await (answered ?? send(refusal(404, unknownSession, 'there is no such session, or it has ended')))
  }

  /** The id of a new session. Never rejects. Whoever has gone, or finds the HTTP server closing, leaves nothing behind. */
  async #opened(body: unknown, reply: FastifyReply): Promise<Response | string> {
    if (!isInitializeRequest(body)) {
      return refusal(
        400,
        refused,
        'begin with `initialize`, and then send the mcp-session-id of its reply with each request',
      )
    }
    const { tools, version } = this.#options
    using scope = new AbortScope(this.closedSignal)
    const onGone = (): void => scope.abort(new MillraceError('cancelled', 'the client has gone'))
    reply.raw.once('close', onGone)
    const id = randomUUID()
    const end = (): Promise<void> => this.#sessions.end(id)
    try {
      await this.#sessions.open(id, (signal) => HttpSession.open(id, { tools, version, signal, end }), scope.signal)
      return id
    } catch (error) {
      const { code, rawMessage } = MillraceError.from(error, 'setup_failed')
      return refusal(code === 'overloaded' ? 503 : 500, refused, rawMessage)
    } finally {
      reply.raw.off('close', onGone)
    }
  }
}

interface HttpSessionOptions {
  readonly tools: ServedTools
  readonly version: string
  readonly signal: AbortSignal
  /** Never rejects. */
  readonly end: () => Promise<void>
}

/** One client of the HTTP server: its session, and the SDK's end of the connection. */
class HttpSession extends Resource {
  readonly #session: EnvironmentSession
  readonly #server: Server
  readonly #transport: WebStandardStreamableHTTPServerTransport

  private constructor(id: string, session: EnvironmentSession, { tools, version, end }: HttpSessionOptions) {
    super()
    this.#session = session
    this.#server = mcpServer(tools, session, version)
    this.#transport = new WebStandardStreamableHTTPServerTransport({
      sessionIdGenerator: () => id,
      onsessionclosed: end,
    })
  }

  static async open(id: string, options: HttpSessionOptions): Promise<HttpSession> {
    const session = await options.tools.session({ id, signal: options.signal })
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
    await send(await this.#transport.handleRequest(request, { parsedBody: body }))
  }

  protected async onClose(): Promise<void> {
    await using parts = new AsyncDisposableStack()
    parts.use(this.#session)
    parts.defer(() => this.#server.close())
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
