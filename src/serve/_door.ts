import type { IncomingMessage, ServerResponse } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import { setImmediate as nextTurn } from 'node:timers/promises'
import type * as Fastify from 'fastify'
import { HostCheck, onFirstUse, Resource } from '../kit/index.ts'
import { clientErrorAnswers, type Refusal } from './_client-error.ts'
import { replyWithError } from './_door-error.ts'
import { cannotListen } from './free-port.ts'
import { KnownRoutes } from './_known-routes.ts'
import { responseOn } from './_response-on.ts'

const loadFastify = onFirstUse((load) => load('fastify') as typeof Fastify)

/** As many as a load generator opens at once: the kernel cuts it to its own limit. */
const backlog = 4_096
/** A body takes up its share of memory from its first byte on, so it must not take for ever to arrive. */
const maxUploadMs = 2 * 60_000
const maxHeadersMs = 60_000
/** Node's own limit. */
const maxHeaderBytes = 16 * 1024
const checkEveryMs = 10_000
/** How long a client that reads slowly may keep the door from closing. */
const closeGraceMs = 10_000
/** Longer than clients keep an idle connection, so that it is they who close it. */
const keepAliveMs = 5 * 60_000
/** Twice the longest id. */
const maxParamLength = 256

export interface DoorServerOptions {
  /** Whether it asks for no key. Then `Host` and `Origin` of every request must name this server. */
  readonly isKeyless: boolean
  /** Limits that whoever runs the server can change. */
  readonly limits?: { readonly maxHeaderBytes: number; readonly maxUploadMs: number }
  /** The body of a refusal before any route sees the request; `{ error: { code, message } }` if not given. */
  readonly refusalBody?: (refusal: Refusal) => string
}

/** Something that listens for HTTP: how it begins and how it ends. What it answers is added by those who extend it. */
export abstract class Door extends Resource {
  protected readonly app: Fastify.FastifyInstance
  protected readonly knownRoutes: KnownRoutes
  readonly #host: string
  /** Those that are open, as many as the server takes. */
  readonly #sockets = new Set<Socket>()
  /** How many connections there ever were. */
  #accepted = 0

  protected constructor(host: string, options: DoorServerOptions) {
    super()
    this.#host = host
    const { isKeyless, limits = { maxHeaderBytes, maxUploadMs }, refusalBody: body = plainBody } = options
    const { maxUploadMs: requestTimeout } = limits
    this.app = loadFastify().fastify({
      clientErrorHandler: clientErrorAnswers({ ...limits, areSettings: options.limits !== undefined, body }),
      keepAliveTimeout: keepAliveMs,
      requestTimeout,
      http: {
        // How often Node looks for requests that take too long. It finds none while headers may take longer than all.
        connectionsCheckingInterval: Math.min(checkEveryMs, requestTimeout),
        headersTimeout: Math.min(maxHeadersMs, requestTimeout),
        maxHeaderSize: limits.maxHeaderBytes,
        // Node would answer with an empty body.
        requireHostHeader: false,
      },
      routerOptions: { maxParamLength },
      // A server that is closing says so in its own words.
      return503OnClosing: false,
      frameworkErrors: (error, _request, reply) => void replyWithError(reply, error),
    })
    this.knownRoutes = new KnownRoutes(this.app)
    const hosts = isKeyless ? new HostCheck(host) : undefined
    this.app.addHook('onRequest', ({ raw }, reply, next) => {
      const refusal = hostRefusal(raw, hosts)
      if (!refusal) return next()
      return void reply.code(refusal.status).type('application/json').send(body(refusal))
    })
    this.app.server.on('checkExpectation', (_request: IncomingMessage, response: ServerResponse) => {
      const refusal: Refusal = { status: 417, code: 'usage', message: 'the only Expect that is known is 100-continue' }
      const text = body(refusal)
      const headers = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) }
      response.writeHead(refusal.status, { ...headers, connection: 'close' }).end(text)
    })
    this.app.server.on('connection', (socket: Socket) => {
      this.#accepted += 1
      this.#sockets.add(socket)
      socket.once('close', () => this.#sockets.delete(socket))
    })
    this.app.addHook('onResponse', ({ raw }, _reply, next) => {
      // A connection whose last reply ended while the door closes would be kept for the next request.
      if (this.isClosed) closeIfIdle(raw.socket)
      next()
    })
    // Called by the server's `close`. Node's own would cut off a reply that is written but that its client has yet to take,
    // with all that wait behind it, and would take a connection for busy on which nothing was ever asked.
    this.app.server.closeIdleConnections = () => this.#sockets.forEach(closeIfIdle)
  }

  /** Each as `GET /v1/sessions/{id}`. */
  get routes(): readonly string[] {
    return this.knownRoutes.names
  }

  get url(): string {
    const { port } = this.app.server.address() as AddressInfo
    return `http://${this.#host.includes(':') ? `[${this.#host}]` : this.#host}:${port}`
  }

  /** Closes if that fails. `flag` is how the port was given. */
  protected async listen(port: number, flag?: string): Promise<void> {
    const host = this.#host
    try {
      await this.app.listen({ host, port, backlog })
    } catch (error) {
      await this.close()
      throw cannotListen(error, { host, port, flag })
    }
  }

  /** Lets replies that are being made go out, for a while; those that wait for something end with what they wait for. */
  protected async onClose(): Promise<void> {
    const timer = setTimeout(() => this.app.server.closeAllConnections(), closeGraceMs)
    await this.#acceptQueued()
    // The last to be accepted has as long as the others.
    timer.refresh()
    await this.app.close()
    clearTimeout(timer)
  }

  /**
   * Accepts the connections that wait in the kernel, because those that wait when the port is closed are reset, with the
   * requests on them. Node accepts one in each turn of the loop, and reads what was asked on it in the next.
   */
  async #acceptQueued(): Promise<void> {
    // The turn that is under way may have looked for connections already.
    await nextTurn()
    // While clients keep coming there is always another one: a queue's length of them is enough.
    for (let turn = 0; turn < backlog; turn += 1) {
      const before = this.#accepted
      await nextTurn()
      if (this.#accepted === before) return
    }
  }
}

/** Closes a connection on which no reply is being made or waits to be taken. */
function closeIfIdle(socket: Socket): void {
  if (!responseOn(socket)) socket.destroySoon()
}

function plainBody({ code, message }: Refusal): string {
  return JSON.stringify({ error: { code, message } })
}

/** Why a request is refused for the server that it names; undefined if it is not. */
function hostRefusal(request: IncomingMessage, hosts: HostCheck | undefined): Refusal | undefined {
  if (request.headers.host === undefined && request.httpVersion !== '1.0') {
    return { status: 400, code: 'usage', message: 'the header Host is missing; send it' }
  }
  const message = hosts?.refusal(request.headers)
  return message === undefined ? undefined : { status: 403, code: 'forbidden', message }
}
