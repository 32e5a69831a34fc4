import { once } from 'node:events'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { MillraceError } from '../errors/index.ts'
import { andList, HostCheck, isLoopback, Resource } from '../kit/index.ts'
import type { JsonObject } from '../schema/index.ts'
import { readBody } from './_body-reader.ts'
import type { Control, Controls } from './_control.ts'
import type { SimulatedApi } from './_simulated-api.ts'
import { SimulatorExchange, type ExchangeOwner } from './_simulator-exchange.ts'
import { forcedFault, forcedFaultList, type ForcedFault } from './_fault-names.ts'
import { imitations, type Imitation } from './_imitations.ts'
import { parseServerOptions, type ServerSettings } from './_server-options.ts'
import { simControls } from './_sim-controls.ts'
import type { SimulatorOptions } from './simulator-options.ts'
import type { SimulatorStats } from './simulator-stats.ts'
import { Simulator } from './simulator.ts'

/** As many connections as a load generator opens at once: the kernel cuts it to its own limit. */
const backlog = 4096
const keepAliveMs = 10 * 60_000

/** The server's options, beside the simulator's own. Any model name is served unless `models` lists some. */
export type SimulatorServerOptions = SimulatorOptions & {
  readonly host?: string
  readonly port?: number | string
  /** The key that requests must send as a bearer token, or as `x-api-key`. */
  readonly apiKey?: string
  /** A list, or names separated by commas. */
  readonly models?: readonly string[] | string
}

interface SteeringRequest {
  readonly request: IncomingMessage
  readonly response: ServerResponse
  readonly method: string
  readonly path: string
  readonly query: string
}

/**
 * The simulator as the server of the backend that it imitates. A model named `fault:<name>` answers every request with that
 * fault, so that a client's handling of it can be tried from outside.
 */
export class SimulatorServer extends Resource implements ExchangeOwner {
  readonly simulator: Simulator
  readonly #settings: ServerSettings
  readonly #server: Server
  /** Undefined if other machines are let in: they know the server by names that nobody here knows. */
  readonly #hosts: HostCheck | undefined
  readonly #open = new Set<SimulatorExchange>()
  #requests = 0
  #aborted = 0
  readonly #byStatus: Record<string, number> = {}

  private constructor(settings: ServerSettings, simulator: Simulator) {
    super()
    this.#settings = settings
    this.simulator = simulator
    this.#hosts = isLoopback(settings.host) ? new HostCheck(settings.host) : undefined
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
      const { rawMessage } = MillraceError.from(error, 'config_invalid')
      const message = `the simulator cannot listen on ${host}:${port}: ${rawMessage}. Choose another port, or 0 for any`
      throw new MillraceError('config_invalid', message, { cause: error })
    }
    return server
  }

  get port(): number {
    return (this.#server.address() as AddressInfo | null)?.port ?? 0
  }

  /** The base URL for clients. */
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
      const fault = forcedFault(model.slice('fault:'.length))
      if (fault) return fault
      throw notFound(`there is no fault of that name; the faults are ${forcedFaultList}`)
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

  onGone(exchange: SimulatorExchange, how: 'done' | 'aborted'): void {
    this.#open.delete(exchange)
    if (how === 'aborted') this.#aborted += 1
  }

  get #imitation(): Imitation {
    return imitations[this.simulator.settings.imitate]
  }

  get #models(): readonly string[] {
    return this.#settings.models ?? ['sim']
  }

  #route(request: IncomingMessage, response: ServerResponse): void {
    const { method = '', url = '' } = request
    const [path = '', query = ''] = url.split('?', 2)
    const imitation = this.#imitation
    const api = method === 'POST' ? imitation.apis.get(path) : undefined
    const refusal = this.#refusal(request, imitation, api !== undefined || path.startsWith('/v1/'))
    if (refusal) {
      request.resume()
      refuse(response, api ?? imitation.usualApi, refusal)
    } else if (api) {
      this.#exchange(api, request, response)
    } else {
      this.#steer({ request, response, method, path, query })
    }
  }

  /** Answers a request that asks for no reply of a model. */
  #steer({ request, response, method, path, query }: SteeringRequest): void {
    const { usualApi, apis } = this.#imitation
    const control = this.#controls[`${method} ${path}`]
    if (!control) {
      request.resume()
      const methods = this.#methodsAt(path)
      const headers = methods.length > 0 ? { allow: methods.join(', ') } : {}
      refuse(response, apis.get(path) ?? usualApi, this.#unserved(`${method} ${path}`, methods), headers)
      return
    }
    readBody(
      request,
      (body) => void this.#answer(response, control, { query, body }),
      (error) => refuse(response, usualApi, error),
    )
  }

  #exchange(api: SimulatedApi, request: IncomingMessage, response: ServerResponse): void {
    this.#requests += 1
    const exchange = new SimulatorExchange(this, api, request, response)
    this.#open.add(exchange)
    exchange.start()
  }

  /** Why a request is refused before it is read. */
  #refusal(
    { headers }: IncomingMessage,
    { requiredHeader }: Imitation,
    isForModels: boolean,
  ): MillraceError | undefined {
    const { apiKey } = this.#settings
    const hasKey =
      apiKey !== undefined && (headers.authorization === `Bearer ${apiKey}` || headers['x-api-key'] === apiKey)
    if (isForModels && apiKey !== undefined && !hasKey) {
      const message = 'the key is missing or wrong; send the one the server was started with as a bearer token'
      return new MillraceError('model_auth', message)
    }
    const foreign = hasKey ? undefined : this.#hosts?.refusal(headers)
    if (foreign !== undefined) return new MillraceError('model_rejected', foreign, { data: { status: 403 } })
    if (!isForModels) return undefined
    if (requiredHeader === undefined || headers[requiredHeader] !== undefined) return undefined
    return new MillraceError('model_rejected', `the header ${requiredHeader} is missing; send it`, {
      data: { status: 400 },
    })
  }

  get #controls(): Controls {
    const { controls, modelList } = this.#imitation
    const listModels: Control = ({ models, simulator }) => modelList(models, simulator.settings)
    return { ...controls, ...simControls, 'GET /v1/models': listModels }
  }

  /** The methods that a path takes; empty if there is no such path. */
  #methodsAt(path: string): string[] {
    const methods = this.#imitation.apis.has(path) ? ['POST'] : []
    for (const route of Object.keys(this.#controls)) {
      const [method = '', served] = route.split(' ')
      if (served === path) methods.push(method)
    }
    return methods.toSorted()
  }

  #unserved(route: string, methods: readonly string[]): MillraceError {
    if (methods.length > 0) {
      return new MillraceError('usage', `there is no ${route}; it takes ${andList(methods)}`, { data: { status: 405 } })
    }
    const message = `${route} is not served here; POST ${[...this.#imitation.apis.keys()].join(' or ')}`
    // `not_found`: the path is missing, not the model, as the error code alone would say.
    return new MillraceError('model_not_found', message, { data: { saidCode: 'not_found' } })
  }

  async #answer(
    response: ServerResponse,
    control: Control,
    { query, body }: { readonly query: string; readonly body: JsonObject },
  ): Promise<void> {
    const { simulator, stats } = this
    try {
      const call = { simulator, stats, models: this.#models, query: new URLSearchParams(query), body }
      send(response, 200, await control(call))
    } catch (error) {
      refuse(response, this.#imitation.usualApi, MillraceError.from(error, 'internal'))
    }
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

function notFound(message: string): MillraceError {
  return new MillraceError('model_not_found', message)
}

function refuse(
  response: ServerResponse,
  api: SimulatedApi,
  error: MillraceError,
  more: Readonly<Record<string, string>> = {},
): void {
  const { status, headers, body } = api.error(error)
  send(response, status, body, { ...headers, ...more })
}

function send(
  response: ServerResponse,
  status: number,
  document: object,
  headers: Readonly<Record<string, string>> = {},
): void {
  const text = JSON.stringify(document)
  response.writeHead(status, {
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(text),
    ...headers,
  })
  response.end(text)
}
