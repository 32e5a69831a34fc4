import { temporaryRuns } from 'millrace/testing'
import { Agent, request, type Dispatcher } from 'undici'
import { resolveModelConfig, type ModelConfigInput } from '../../../src/inference/index.ts'
import { GatewayServer, type GatewayServerOptions } from '../../../src/serve/index.ts'

export const adminKey = 'an admin key for tests'

export interface Reply {
  readonly status: number
  readonly headers: Record<string, string | string[] | undefined>
  readonly text: string
  // What a test looks into; it says itself what it expects there.
  readonly body: Record<string, unknown>
}

interface Ask {
  readonly method?: 'GET' | 'POST' | 'PUT' | 'DELETE'
  readonly body?: unknown
  /** The admin key if not given; null for none. */
  readonly key?: string | null
  readonly headers?: Record<string, string>
}

export interface Started {
  readonly id: string
  readonly key: string
  readonly url: string
}

/** A gateway on a port of its own, before the built-in simulator unless other models are given. */
export class TestGateway implements AsyncDisposable {
  readonly server: GatewayServer
  readonly root: string
  readonly #ends: AsyncDisposableStack
  /** Connections of its own, so that nothing of one test is left to another. */
  readonly #agent = new Agent()

  private constructor(server: GatewayServer, root: string, ends: AsyncDisposableStack) {
    this.server = server
    this.root = root
    this.#ends = ends
  }

  static async start(
    options: Partial<Omit<GatewayServerOptions, 'models'>> & { readonly models?: readonly ModelConfigInput[] } = {},
  ): Promise<TestGateway> {
    const { models = [{ name: 'sim', simulator: {} }], ...more } = options
    await using ends = new AsyncDisposableStack()
    const root = options.run?.root ?? ends.use(await temporaryRuns()).root
    const server = ends.use(
      await GatewayServer.open({
        models: models.map((model) => resolveModelConfig({ model, env: {} })),
        keys: [{ tenant: 'tests', key: adminKey }],
        port: 0,
        run: { root, name: 'gateway' },
        env: {},
        ...more,
      }),
    )
    return new TestGateway(server, root, ends.move())
  }

  get url(): string {
    return this.server.url
  }

  async ask(path: string, { method, body, key = adminKey, headers = {} }: Ask = {}): Promise<Reply> {
    const response = await this.open(path, {
      method: method ?? (body === undefined ? 'GET' : 'POST'),
      body,
      key,
      headers,
    })
    const text = await response.body.text()
    return { status: response.statusCode, headers: response.headers, text, body: parsed(text) }
  }

  /** A request whose reply is read as it comes. */
  async open(
    path: string,
    { method = 'POST', body, key = adminKey, headers = {} }: Ask,
  ): Promise<Dispatcher.ResponseData> {
    return await request(`${this.url}${path}`, {
      dispatcher: this.#agent,
      method,
      headers: {
        ...(body !== undefined && { 'content-type': 'application/json' }),
        ...(key !== null && { authorization: `Bearer ${key}` }),
        ...headers,
      },
      ...(body !== undefined && { body: typeof body === 'string' ? body : JSON.stringify(body) }),
    })
  }

  async startSessions(options: Record<string, unknown> = {}): Promise<readonly Started[]> {
    const { body } = await this.ask('/v1/sessions', { body: options })
    return body['sessions'] as Started[]
  }

  async startSession(options: Record<string, unknown> = {}): Promise<Started> {
    const [session] = await this.startSessions(options)
    if (!session) throw new Error('no session was started')
    return session
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.server.close()
    await this.#agent.destroy()
    await this.#ends[Symbol.asyncDispose]()
  }
}

/** One word to each API, and what it is asked for. */
export const asked = {
  chat: { path: '/v1/chat/completions', body: { model: 'sim', messages: [{ role: 'user', content: 'hello' }] } },
  responses: { path: '/v1/responses', body: { model: 'sim', input: 'hello' } },
  messages: {
    path: '/v1/messages',
    body: { model: 'sim', max_tokens: 100, messages: [{ role: 'user', content: 'hello' }] },
  },
} as const

export const apis = Object.keys(asked) as (keyof typeof asked)[]

function parsed(text: string): Record<string, unknown> {
  try {
    return JSON.parse(text || '{}') as Record<string, unknown>
  } catch {
    return {}
  }
}
