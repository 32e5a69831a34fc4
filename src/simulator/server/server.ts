import { once } from 'node:events'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { z } from 'zod'
import { MillraceError } from '../../errors/index.ts'
import { HostCheck, isLoopback, Resource } from '../../kit/index.ts'
import { describeIssues, safeParse } from '../../schema/index.ts'
import type { SimulatedApi } from '../apis/dialect-api.ts'
import { forcedFault, type ForcedFault, forcedFaultList } from '../engine/faults.ts'
import type { SimulatorOptions } from '../engine/options.ts'
import { Simulator } from '../engine/simulator.ts'
import {
  type Control,
  type Controls,
  type Imitation,
  imitations,
  simControls,
  type SimulatorStats,
} from './imitations.ts'
import { type ExchangeOwner, readBody, SimulatorExchange } from './exchange.ts'

/** As many connections as a load generator opens at once: the kernel cuts it to its own limit. */
const backlog = 4096
const keepAliveMs = 10 * 60_000

/** The server's options, beside the simulator's own. Any model name is served unless `models` lists some. */
export type SimulatorServerOptions = SimulatorOptions & {
  readonly host?: string
  readonly port?: number | string
  readonly apiKey?: string
  readonly models?: readonly string[] | string
}

/** The simulator as the server of the backend it imitates. A model named `fault:<name>` answers with that fault. */
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
      this.#requests += 1
      const exchange = new SimulatorExchange(this, api, request, response)
      this.#open.add(exchange)
      exchange.start()
    } else {
      this.#control(request, response, { path, query: new URLSearchParams(query) })
    }
  }

  #control(
    request: IncomingMessage,
    response: ServerResponse,
    { path, query }: { readonly path: string; readonly query: URLSearchParams },
  ): void {
    const { usualApi, apis } = this.#imitation
    const route = `${request.method ?? ''} ${path}`
    const control = this.#controls[route]
    if (!control) {
      request.resume()
      refuse(response, apis.get(path) ?? usualApi, this.#unserved(route))
      return
    }
    const { simulator, stats } = this
    readBody(
      request,
      (body) =>
        void Promise.try(() => control({ simulator, stats, models: this.#models, query, body })).then(
          (document) => send(response, 200, document),
          (error: unknown) => refuse(response, usualApi, MillraceError.from(error, 'internal')),
        ),
      (error) => refuse(response, usualApi, error),
    )
  }

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
    const { routes, controls = {}, modelList } = this.#imitation
    const listModels: Control = ({ models, simulator }) => modelList(models, simulator)
    const { engineControls, failingControls } = this.simulator.settings
    const failing = failingControls.split(',').map((path) => path.trim())
    const offered = Object.entries(engineControls ? controls : {}).map(([route, control]): [string, Control] => [
      route,
      failing.some((path) => path !== '' && route.endsWith(path)) ? failed : control,
    ])
    return { ...routes, ...Object.fromEntries(offered), ...simControls, 'GET /v1/models': listModels }
  }

  #unserved(route: string): MillraceError {
    const message = `${route} is not served here; POST ${[...this.#imitation.apis.keys()].join(' or ')}`
    // `not_found`: the path is missing, not the model, as the error code alone would say.
    return new MillraceError('model_not_found', message, { data: { saidCode: 'not_found' } })
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

function failed(): never {
  throw new MillraceError('model_server_error', 'the simulator failed, as failingControls asks', {
    data: { status: 500 },
  })
}

function notFound(message: string): MillraceError {
  return new MillraceError('model_not_found', message)
}

function refuse(response: ServerResponse, api: SimulatedApi, error: MillraceError): void {
  const { status, headers, body } = api.error(error)
  send(response, status, body, headers)
}

function send(
  response: ServerResponse,
  status: number,
  document: object | string,
  headers: Readonly<Record<string, string>> = {},
): void {
  const text = typeof document === 'string' ? document : JSON.stringify(document)
  response.writeHead(status, {
    'content-type': typeof document === 'string' ? 'text/plain; version=0.0.4' : 'application/json',
    'content-length': Buffer.byteLength(text),
    ...headers,
  })
  response.end(text)
}

const schema = z.object({
  host: z.string().min(1).default('127.0.0.1'),
  port: z.coerce.number().int().min(0).max(65_535).default(0),
  apiKey: z.string().min(1).optional(),
  models: z
    .union([
      z.string().transform((names) => names.split(',').map((name) => name.trim())),
      z.array(z.string()).readonly(),
    ])
    .optional(),
})

type ServerSettings = z.output<typeof schema>

function parseServerOptions(options: Readonly<Record<string, unknown>>): {
  readonly settings: ServerSettings
  readonly simulatorOptions: SimulatorOptions
} {
  const { host, port, apiKey, models, ...simulatorOptions } = options
  const parsed = safeParse(schema, { host, port, apiKey, models })
  if (parsed.success) return { settings: parsed.data, simulatorOptions }
  const message = `options of the simulator's server: ${describeIssues(parsed.error.issues)}`
  throw new MillraceError('config_invalid', message, { cause: parsed.error })
}
