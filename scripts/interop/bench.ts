import { mkdir } from 'node:fs/promises'
import type { ApiName } from '../../src/schema/index.ts'
import { findModels, GatewayServer } from '../../src/serve/index.ts'
import { SimulatorServer, type ImitationName } from '../../src/simulator/index.ts'
import type { MergedRow, Recorded, Tokens } from './token-record.ts'

const adminKey = 'admin-key-of-the-interop'
const imitations: Readonly<Record<ApiName, ImitationName>> = {
  chat: 'vllm',
  responses: 'openai',
  messages: 'anthropic',
}

/**
 * The models of a gateway. `each-api`: one for each API of a backend, and named after it. `policy`: a trainable Chat model that
 * answers to every name; `reasoning-policy`: the same, but it reasons, and not every framework sends that back.
 */
type Kind = 'each-api' | 'policy' | 'reasoning-policy'

/** A gateway over simulators that remember what they were asked. */
export class Bench implements AsyncDisposable {
  readonly url: string
  readonly #simulator: SimulatorServer
  readonly #ends: AsyncDisposableStack

  private constructor(url: string, simulator: SimulatorServer, ends: AsyncDisposableStack) {
    this.url = url
    this.#simulator = simulator
    this.#ends = ends
  }

  static async start(folder: string, kind: Kind): Promise<Bench> {
    await using ends = new AsyncDisposableStack()
    await mkdir(folder, { recursive: true })
    const options = {
      reasoning: kind !== 'policy',
      recordEmitted: 1000,
      // As that of Qwen3-8B. Agents ask for longer replies than fit into it.
      ...(kind === 'reasoning-policy' && { contextLength: 40_960 }),
    }
    const startSimulator = async (api: ApiName): Promise<SimulatorServer> =>
      ends.use(await SimulatorServer.start({ imitate: imitations[api], ...options }))
    const chat = await startSimulator('chat')
    const models: Record<string, { api: ApiName; backends: { url: string }[] }> = {}
    if (kind === 'each-api') {
      models['chat'] = { api: 'chat', backends: [{ url: chat.url }] }
      for (const api of ['responses', 'messages'] as const) {
        models[api] = { api, backends: [{ url: (await startSimulator(api)).url }] }
      }
    } else models['policy'] = { api: 'chat', backends: [{ url: chat.url }] }
    const found = await findModels({ backends: [], models, env: {}, signal: AbortSignal.timeout(20_000) })
    const server = ends.use(
      await GatewayServer.open({
        ...found,
        ...(kind !== 'each-api' && { aliases: { '*': 'policy' } }),
        keys: [{ tenant: 'interop', key: adminKey }],
        port: 0,
        run: { root: folder, name: 'gateway' },
        env: {},
      }),
    )
    return new Bench(server.url, chat, ends.move())
  }

  /** Where programs find it. */
  get env(): Readonly<Record<string, string>> {
    const simulator = new URL('/', this.#simulator.url).href.slice(0, -1)
    return { GATEWAY_URL: this.url, GATEWAY_ADMIN_KEY: adminKey, SIMULATOR_URL: simulator }
  }

  async startSession(): Promise<{ readonly id: string; readonly key: string }> {
    const init = { method: 'POST', headers: { 'x-api-key': adminKey }, body: '{}' }
    const { sessions } = (await (await fetch(`${this.url}/v1/sessions`, init)).json()) as {
      sessions: [{ id: string; key: string }]
    }
    return sessions[0]
  }

  async interactions(session: string): Promise<readonly Recorded[]> {
    return await this.#rows<Recorded>(session, 'interactions')
  }

  async mergedRows(session: string): Promise<readonly MergedRow[]> {
    return await this.#rows<MergedRow>(session, 'merged')
  }

  /** The replies of a session as they left the backend. */
  async emitted(session: string): Promise<readonly Tokens[]> {
    const url = new URL(`/sim/emitted?session=${session}`, this.#simulator.url)
    const { replies } = (await (await fetch(url)).json()) as { replies: readonly Tokens[] }
    return replies
  }

  async #rows<Row>(session: string, rows: string): Promise<readonly Row[]> {
    const headers = { 'x-api-key': adminKey }
    const text = await (await fetch(`${this.url}/v1/export?session=${session}&rows=${rows}`, { headers })).text()
    return text
      .trimEnd()
      .split('\n')
      .slice(0, -1)
      .map((line) => JSON.parse(line) as Row)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#ends.disposeAsync()
  }
}
