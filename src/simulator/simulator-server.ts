import { once } from 'node:events'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { MillraceError } from '../errors/index.ts'
import { Resource } from '../kit/index.ts'
import { readBody } from './_body-reader.ts'
import { chatDialect } from './_chat-reply.ts'
import type { Dialect } from './_dialect.ts'
import { Exchange, type ExchangeOwner } from './_exchange.ts'
import { forcedFaults, type ForcedFault } from './_faults.ts'
import { httpError } from './_http-error.ts'
import { responsesDialect } from './_responses-reply.ts'
import type { SimulatorOptions } from './simulator-options.ts'
import { parseServerOptions, type ServerSettings } from './_server-options.ts'
import { Simulator } from './simulator.ts'

/** As many as a load generator opens at once: the kernel cuts it to its own limit. */
const backlog = 4096
const keepAliveMs = 10 * 60_000

/** Beside the simulator's own options. Any model name is served unless `models` lists some. */
export type SimulatorServerOptions = SimulatorOptions & {
  readonly host?: string
  readonly port?: number | string
  /** Asked for as a bearer token. */
  readonly apiKey?: string
  /** A list, or names separated by commas. */
  readonly models?: readonly string[] | string
}

export interface SimulatorStats {
  readonly requests: number
  readonly inFlight: number
  /** The client went away before its answer was complete. */
  readonly aborted: number
  readonly byStatus: Readonly<Record<string, number>>
}

/**
 * The simulator as an OpenAI-compatible server. A model named `fault:<name>` answers every request with that fault, so
 * that a client's handling of it can be tried from outside.
 */
export class SimulatorServer extends Resource implements ExchangeOwner {
  readonly simulator: Simulator
  readonly #settings: ServerSettings
  readonly #server: Server
  readonly #open = new Set<Exchange>()
  #requests = 0
  #aborted = 0
  readonly #byStatus: Record<string, number> = {}

  private constructor(settings: ServerSettings, simulator: Simulator) {
    super()
    this.#settings = settings
    this.simulator = simulator
    this.#server = createServer({ keepAliveTimeout: keepAliveMs }, (request, response) =>
      this.#route(request, response),
    )
  }

  static async start(options: SimulatorServerOptions = {}): Promise<SimulatorServer> {
    const { settings, simulatorOptions } = parseServerOptions(options)
    const server = new SimulatorServer(settings, new Simulator(simulatorOptions))
    const { host, port } = settings
    server.#server.listen({ host, port, backlog })
    try {
      await once(server.#server, 'listening')
    } catch (error) {
      await server.close()
      const message = `the simulator cannot listen on ${host}:${port}: ${String(error)}. Choose another port, or 0 for any`
      throw new MillraceError('config_invalid', message, { cause: error })
    }
    return server
  }

  get port(): number {
    return (this.#server.address() as AddressInfo | null)?.port ?? 0
  }

  /** What clients take as their base URL. */
  get url(): string {
    const { host } = this.#settings
    return `http://${host.includes(':') ? `[${host}]` : host}:${this.port}/v1`
  }

  get stats(): SimulatorStats {
    return {
      requests: this.#requests,
      inFlight: this.#open.size,
      aborted: this.#aborted,
      byStatus: { ...this.#byStatus },
    }
  }

  checkModel(model: string): ForcedFault | undefined {
    if (model.startsWith('fault:')) {
      const fault = forcedFaults.find((name) => `fault:${name}` === model)
      if (fault) return fault
      throw notFound(`there is no fault of that name; the faults are ${forcedFaults.join(', ')}`)
    }
    const { models } = this.#settings
    if (models && !models.includes(model)) {
      throw notFound(`the model "${model}" is not served here; the models are ${models.join(', ')}`)
    }
    return undefined
  }

  onStatus(status: number): void {
    this.#byStatus[status] = (this.#byStatus[status] ?? 0) + 1
  }

  onGone(exchange: Exchange, how: 'done' | 'aborted'): void {
    this.#open.delete(exchange)
    if (how === 'aborted') this.#aborted += 1
  }

  #route(request: IncomingMessage, response: ServerResponse): void {
    const { method, url = '' } = request
    const path = url.split('?', 1)[0] ?? ''
    if (path.startsWith('/v1/') && !this.#isAllowed(request)) {
      const message = 'the key is missing or wrong; send the one the server was started with as a bearer token'
      reply(response, httpError(new MillraceError('model_auth', message)))
      request.resume()
    } else if (method === 'POST' && path === '/v1/chat/completions') {
      this.#exchange(chatDialect, request, response)
    } else if (method === 'POST' && path === '/v1/responses') {
      this.#exchange(responsesDialect, request, response)
    } else if (method === 'POST' && path === '/sim/settings') {
      this.#changeSettings(request, response)
    } else {
      request.resume()
      reply(response, method === 'GET' ? this.#look(path) : unknownRoute(method, path))
    }
  }

  #exchange(dialect: Dialect, request: IncomingMessage, response: ServerResponse): void {
    this.#requests += 1
    const exchange = new Exchange(this, dialect, request, response)
    this.#open.add(exchange)
    exchange.start()
  }

  #isAllowed(request: IncomingMessage): boolean {
    const { apiKey } = this.#settings
    return apiKey === undefined || request.headers.authorization === `Bearer ${apiKey}`
  }

  #look(path: string): Reply {
    switch (path) {
      case '/health':
        return json({ status: 'ok' })
      case '/sim/stats':
        return json(this.stats)
      case '/sim/settings':
        return json(this.simulator.settings)
      case '/v1/models': {
        const models = this.#settings.models ?? ['sim']
        return json({
          object: 'list',
          data: models.map((id) => ({ id, object: 'model', created: 0, owned_by: 'millrace' })),
        })
      }
      default:
        return unknownRoute('GET', path)
    }
  }

  /** Takes any of the simulator's options, and `overload: true` or `false` for until further notice. */
  #changeSettings(request: IncomingMessage, response: ServerResponse): void {
    const fail = (error: unknown): void => reply(response, httpError(error))
    const change = (body: unknown): void => {
      try {
        if (typeof body !== 'object' || body === null) {
          throw new MillraceError('config_invalid', 'the body is not an object of options, such as {"faults.cut": 0.1}')
        }
        const { overload, ...options } = body as Record<string, unknown>
        this.simulator.change(typeof overload === 'boolean' ? options : (body as SimulatorOptions))
        if (typeof overload === 'boolean') this.simulator.setOverload(overload)
        reply(response, json(this.simulator.settings))
      } catch (error) {
        fail(error)
      }
    }
    readBody(request, change, fail)
  }

  protected override async onClose(): Promise<void> {
    for (const exchange of this.#open) exchange.destroy()
    await this.simulator.close()
    if (!this.#server.listening) return
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#server.close(() => resolve())
    this.#server.closeAllConnections()
    await promise
  }
}

interface Reply {
  readonly status: number
  readonly headers?: Readonly<Record<string, string>>
  readonly body: string
}

function json(value: unknown): Reply {
  return { status: 200, body: JSON.stringify(value) }
}

function unknownRoute(method: string | undefined, path: string): Reply {
  const message = `${method} ${path} is not served here; POST /v1/chat/completions or /v1/responses`
  const error = { message, type: 'invalid_request_error', param: null, code: 'not_found' }
  return { status: 404, body: JSON.stringify({ error }) }
}

function notFound(message: string): MillraceError {
  return new MillraceError('model_not_found', message)
}

function reply(response: ServerResponse, { status, headers, body }: Reply): void {
  response.writeHead(status, {
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(body),
    ...headers,
  })
  response.end(body)
}
