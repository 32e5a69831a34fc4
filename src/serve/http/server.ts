import { once } from 'node:events'
import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http'
import { type AddressInfo, createServer, type Socket } from 'node:net'
import { setImmediate as nextTurn } from 'node:timers/promises'
import type * as Fastify from 'fastify'
import type { FastifyInstance } from 'fastify'
import { MillraceError } from '../../errors/index.ts'
import { keepAliveMs } from '../../http/index.ts'
import { HostCheck, isLoopback, onFirstUse, Resource } from '../../kit/index.ts'
import { clientErrorAnswers, type Refusal, replyWithError } from './errors.ts'
import { RouteRegistry } from './routes.ts'

const loadFastify = onFirstUse((load) => load('fastify') as typeof Fastify)

/** As many as a load generator opens at once: the kernel cuts it to its own limit. */
const backlog = 4_096
/** A body takes up its share of memory from its first byte on, so it must not take for ever to arrive. */
const maxUploadMs = 2 * 60_000
const maxHeadersMs = 60_000
const maxHeaderBytes = 16 * 1024
const checkEveryMs = 10_000
/** How long a client that reads slowly may keep the HTTP server from closing. */
const closeGraceMs = 10_000
const maxParamLength = 256

interface HttpServerOptions {
  /** Whether it asks for no key. Then `Host` and `Origin` of every request must name this server. */
  readonly isKeyless: boolean
  readonly limits?: { readonly maxHeaderBytes: number; readonly maxUploadMs: number }
  /** The body of a refusal before any route sees the request; `{ error: { code, message } }` if not given. */
  readonly refusalBody?: (refusal: Refusal) => string
  /** Answers a request whose path cannot be read or is too long, if it wants to. */
  readonly refuseUnreadable?: (request: Fastify.FastifyRequest, reply: Fastify.FastifyReply) => unknown
}

/** Something that listens for HTTP: how it begins and how it ends. What it answers is added by those who extend it. */
export abstract class HttpServer extends Resource {
  protected readonly app: Fastify.FastifyInstance
  protected readonly knownRoutes: RouteRegistry
  protected readonly openResponses: OpenResponses
  readonly #host: string
  /** Those that are open, as many as the server takes. */
  readonly #sockets = new Set<Socket>()
  #accepted = 0

  protected constructor(host: string, options: HttpServerOptions) {
    super()
    this.#host = host
    const { isKeyless, limits = { maxHeaderBytes, maxUploadMs }, refusalBody: body = plainBody } = options
    const { maxUploadMs: requestTimeout } = limits
    this.app = loadFastify().fastify({
      clientErrorHandler: clientErrorAnswers({
        ...limits,
        areSettings: options.limits !== undefined,
        body,
        responseOn: (socket) => this.openResponses.on(socket),
      }),
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
      frameworkErrors: (error, request, reply) =>
        void (options.refuseUnreadable?.(request, reply) ?? replyWithError(reply, error)),
    })
    this.openResponses = new OpenResponses(this.app)
    this.knownRoutes = new RouteRegistry(this.app)
    const hosts = isKeyless ? new HostCheck(host) : undefined
    this.app.addHook('onRequest', ({ raw }, reply, next) => {
      const refusal = hostRefusal(raw, hosts)
      if (!refusal) return next()
      return void reply.code(refusal.status).type('application/json').send(body(refusal))
    })
    this.app.server.on('checkExpectation', (_request: IncomingMessage, response: ServerResponse) => {
      const refusal: Refusal = { status: 417, code: 'usage', message: 'the only supported Expect is 100-continue' }
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
      // A connection whose last reply ended while the HTTP server closes would be kept for the next request.
      if (this.isClosed) this.#closeIfIdle(raw.socket)
      next()
    })
    // Called by the server's `close`. Node's own would cut off a reply that is written but that its client has yet to take,
    // with all that wait behind it, and would take a connection for busy on which nothing was ever asked.
    this.app.server.closeIdleConnections = () => this.#sockets.forEach((socket) => this.#closeIfIdle(socket))
  }

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

  /** Closes a connection on which no reply is being made or waits to be taken. */
  #closeIfIdle(socket: Socket): void {
    if (!this.openResponses.on(socket)) socket.destroySoon()
  }

  /** Accepts the connections that wait in the kernel: when the port is closed those would be reset, with their requests. */
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

function plainBody({ code, message }: Refusal): string {
  return JSON.stringify({ error: { code, message } })
}

function hostRefusal(request: IncomingMessage, hosts: HostCheck | undefined): Refusal | undefined {
  if (request.headers.host === undefined && request.httpVersion !== '1.0') {
    return { status: 400, code: 'usage', message: 'the header Host is missing; send it' }
  }
  const message = hosts?.refusal(request.headers)
  return message === undefined ? undefined : { status: 403, code: 'forbidden', message }
}

export class OpenResponses {
  readonly #open = new WeakMap<Socket, Set<ServerResponse>>()

  constructor(app: FastifyInstance) {
    app.addHook('onRequest', ({ raw: { socket } }, { raw: response }, next) => {
      const open = this.#open.get(socket) ?? new Set()
      this.#open.set(socket, open.add(response))
      const remove = (): void => void open.delete(response)
      // Before fastify's own listener, which calls the hooks that ask what is open.
      response.prependOnceListener('finish', remove)
      response.once('close', remove)
      next()
    })
  }

  on(socket: Socket): ServerResponse | undefined {
    const [first] = this.#open.get(socket) ?? []
    return first
  }
}

/** Throws what listening there would. To be asked before anything is made that a server that cannot listen leaves behind. */
export async function requireFreePort(host: string, port: number): Promise<void> {
  const server = createServer()
  try {
    await once(server.listen({ host, port }), 'listening')
  } catch (error) {
    throw cannotListen(error, { host, port })
  }
  await once(server.close(), 'close')
}

function cannotListen(
  cause: unknown,
  { host, port, flag = '--port (port)' }: { host: string; port: number; flag?: string | undefined },
): MillraceError {
  const { rawMessage } = MillraceError.from(cause, 'config_invalid')
  return new MillraceError(
    'config_invalid',
    `cannot listen on ${host}:${port}: ${rawMessage}. Choose another ${flag}, or 0 for any`,
    { cause },
  )
}

/** A key that other machines can try at leisure must not be guessed. */
const minKeyCharacters = 16

/** What a header carries as it is, and nobody trims: a key from a file often has a line end that no client can send. */
const sendable = /^[!-~]+( +[!-~]+)*$/

interface ServerKey {
  readonly name: string
  readonly key: string
}

/** Keys that clients can send; a server to other machines needs a real lock. `missing` says what one is and how to give it. */
export function requireKeys(host: string, keys: readonly ServerKey[], missing: string): void {
  const unsendable = keys.find(({ key }) => !sendable.test(key))
  if (unsendable) {
    throw new MillraceError(
      'config_invalid',
      `${unsendable.name} begins or ends with white space, or has characters other than plain ASCII, so clients cannot send it: correct it at its source`,
    )
  }
  // Only this machine can reach it.
  if (isLoopback(host)) return
  const open = `listening on ${host} lets other machines in`
  if (keys.length === 0) {
    throw new MillraceError('config_invalid', `${open}, so it needs ${missing}, or listen on 127.0.0.1`)
  }
  const weak = keys.find(({ key }) => key.length < minKeyCharacters)
  if (!weak) return
  throw new MillraceError(
    'config_invalid',
    `${open}, and ${weak.name} has fewer than ${minKeyCharacters} characters: make one with \`openssl rand -base64 32\``,
  )
}

export function requireAccessKey(host: string, key: string | undefined): void {
  requireKeys(
    host,
    key === undefined ? [] : [{ name: 'the key of this server', key }],
    'a key: set MILLRACE_API_KEY, or name another variable with --access-key-env (accessKey)',
  )
}

const scheme = 'bearer '

function bearerToken(authorization: string | undefined): string | undefined {
  if (authorization?.slice(0, scheme.length).toLowerCase() !== scheme) return undefined
  return authorization.slice(scheme.length)
}

export interface RequestKeys {
  readonly bearer: string | undefined
  readonly apiKey: string | undefined
}

export function keysIn({ authorization, 'x-api-key': apiKey }: IncomingHttpHeaders): RequestKeys {
  return {
    bearer: bearerToken(authorization),
    apiKey: typeof apiKey === 'string' ? apiKey : undefined,
  }
}
