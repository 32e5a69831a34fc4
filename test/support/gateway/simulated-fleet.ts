import { SimulatorServer, type SimulatorServerOptions } from '../../../src/simulator/index.ts'
import type { ModelConfigInput } from '../../../src/inference/index.ts'
import type { GatewayServerOptions } from '../../../src/serve/index.ts'
import { TestGateway, type Reply } from './test-gateway.ts'

export interface FleetAnswer {
  readonly ok: boolean
  readonly epoch?: number
  readonly backends: readonly {
    readonly backend: string
    readonly ok: boolean
    readonly status: string
    readonly version?: string
    readonly mode?: string
    readonly note?: string
    readonly error?: string
  }[]
}

export interface ListedBackend {
  readonly id: string
  readonly url: string
  readonly models: readonly string[]
  readonly state: string
  readonly version: string | null
  readonly inFlight: number
  readonly epoch?: number
  readonly leaseMs?: number
  readonly error?: string
}

interface FleetOptions {
  readonly count?: number
  readonly simulator?: SimulatorServerOptions
  readonly model?: Partial<ModelConfigInput>
  readonly gateway?: Partial<Omit<GatewayServerOptions, 'models'>>
}

/** A gateway over servers of the simulator, each on a port of its own. */
export class SimulatedFleet implements AsyncDisposable {
  readonly servers: readonly SimulatorServer[]
  readonly gateway: TestGateway
  readonly alarms: string[]
  readonly #ends: AsyncDisposableStack

  private constructor(parts: Pick<SimulatedFleet, 'servers' | 'gateway' | 'alarms'>, ends: AsyncDisposableStack) {
    this.servers = parts.servers
    this.gateway = parts.gateway
    this.alarms = parts.alarms
    this.#ends = ends
  }

  static async start({
    count = 1,
    simulator = {},
    model = {},
    gateway: options,
  }: FleetOptions = {}): Promise<SimulatedFleet> {
    await using ends = new AsyncDisposableStack()
    const started = Array.from({ length: count }, () =>
      SimulatorServer.start({ recordEmitted: 100_000, weightVersion: '0', ...simulator }),
    )
    const servers = (await Promise.all(started)).map((server) => ends.use(server))
    const engine = simulator.imitate === 'sglang' ? 'sglang' : 'vllm'
    const backends = servers.map(({ url }) => ({ url, engine }) as const)
    const alarms: string[] = []
    const gateway = ends.use(
      await TestGateway.start({
        models: [{ name: 'policy', backends, maxConcurrency: 4096, ...model }],
        onFleetAlarm: (message) => void alarms.push(message),
        ...options,
      }),
    )
    return new SimulatedFleet({ servers, gateway, alarms }, ends.move())
  }

  get server(): SimulatorServer {
    return this.servers[0] as SimulatorServer
  }

  idOf(server: SimulatorServer): string {
    return new URL(server.url).host
  }

  async list(): Promise<readonly ListedBackend[]> {
    const { body } = await this.gateway.ask('/v1/backends')
    return (body as unknown as { readonly backends: readonly ListedBackend[] }).backends
  }

  async order(what: string, body: object = {}): Promise<FleetAnswer & { readonly httpStatus: number }> {
    const { status, body: answer } = await this.gateway.ask(`/v1/backends/${what}`, { body })
    return { ...(answer as unknown as FleetAnswer), httpStatus: status }
  }

  chat(key: string, content = 'What is 6 * 7?', more: object = {}): Promise<Reply> {
    const body = { model: 'policy', messages: [{ role: 'user', content }], ...more }
    return this.gateway.ask('/v1/chat/completions', { key, body })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#ends.disposeAsync()
  }
}
