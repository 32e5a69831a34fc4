import Anthropic from '@anthropic-ai/sdk'
import { temporaryRuns } from 'millrace/testing'
import OpenAI from 'openai'
import { request } from 'undici'
import { beforeAll, expect } from 'vitest'
import type { SessionOptionsInput, SessionView } from '../../../src/gateway/index.ts'
import type { NamedModelInput } from '../../../src/inference/index.ts'
import type { ApiName, MessageNode } from '../../../src/schema/index.ts'
import { findModels, GatewayServer } from '../../../src/serve/index.ts'
import { type ImitationName, SimulatorServer, type SimulatorServerOptions } from '../../../src/simulator/index.ts'
import { runFolder, RunReader } from '../../../src/store/index.ts'

/** A server for each API that a model may be asked in. */
const imitations: Readonly<Record<ApiName, ImitationName>> = {
  chat: 'vllm',
  responses: 'openai',
  messages: 'anthropic',
}

export const modelName = 'sim'
const tenant = 'tests'
const adminKey = 'admin-key-of-the-tests'
const runName = 'gateway'

export interface StartOptions {
  /** The API that the gateway asks its backend in. */
  readonly api?: ApiName
  readonly simulator?: SimulatorServerOptions
  /** More models of that backend, by their names. */
  readonly models?: Readonly<Record<string, NamedModelInput>>
}

/** How a client says which session it means: by its key, or by its address and the key of an admin. */
export type Way = 'key' | 'url'

/** The whole of `millrace gateway` before a simulator, both on ports of their own. */
export class GatewayOverSimulator implements AsyncDisposable {
  readonly simulator: SimulatorServer
  readonly url: string
  readonly #reader: RunReader
  readonly #ends: AsyncDisposableStack

  private constructor(
    parts: { simulator: SimulatorServer; url: string; reader: RunReader },
    ends: AsyncDisposableStack,
  ) {
    this.simulator = parts.simulator
    this.url = parts.url
    this.#reader = parts.reader
    this.#ends = ends
  }

  static async start({ api = 'chat', simulator: options, models }: StartOptions = {}): Promise<GatewayOverSimulator> {
    await using ends = new AsyncDisposableStack()
    const { root } = ends.use(await temporaryRuns())
    const simulator = ends.use(await SimulatorServer.start({ imitate: imitations[api], ...options }))
    // Asked once: what the backend answers is what the client sees.
    const base = { api, backends: [{ url: simulator.url }], maxTries: 1 } as const
    const named = Object.entries({ [modelName]: {}, ...models }).map(([name, more]) => [name, { ...base, ...more }])
    const found = await findModels({
      backends: [],
      models: Object.fromEntries(named),
      env: {},
      signal: AbortSignal.timeout(20_000),
    })
    const server = ends.use(
      await GatewayServer.open({
        ...found,
        keys: [{ tenant, key: adminKey }],
        port: 0,
        run: { root, name: runName },
        env: {},
      }),
    )
    const reader = ends.use(RunReader.open(runFolder(root, runName)))
    return new GatewayOverSimulator({ simulator, url: server.url, reader }, ends.move())
  }

  async startSession(options: SessionOptionsInput = {}): Promise<TestSession> {
    const { statusCode, body } = await request(`${this.url}/v1/sessions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${adminKey}` },
      body: JSON.stringify(options),
    })
    if (statusCode !== 201) throw new Error(`no session: ${await body.text()}`)
    const { sessions } = (await body.json()) as { sessions: [{ id: string; key: string; url: string }] }
    return new TestSession(this.url, sessions[0], this.#reader)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#ends[Symbol.asyncDispose]()
  }
}

/** A session and the official clients for it. */
export class TestSession {
  readonly id: string
  readonly key: string
  readonly url: string
  readonly #gatewayUrl: string
  readonly #reader: RunReader

  constructor(gatewayUrl: string, started: { id: string; key: string; url: string }, reader: RunReader) {
    this.id = started.id
    this.key = started.key
    this.url = started.url
    this.#gatewayUrl = gatewayUrl
    this.#reader = reader
  }

  openai(way: Way = 'key'): OpenAI {
    const { baseURL, apiKey } = this.reachedBy(way)
    return new OpenAI({ baseURL: `${baseURL}/v1`, apiKey, maxRetries: 0 })
  }

  anthropic(way: Way = 'key'): Anthropic {
    return new Anthropic({ ...this.reachedBy(way), maxRetries: 0 })
  }

  /** What a client of any kind is configured with; the version is not in the url. */
  reachedBy(way: Way): { readonly baseURL: string; readonly apiKey: string } {
    return way === 'key' ? { baseURL: this.#gatewayUrl, apiKey: this.key } : { baseURL: this.url, apiKey: adminKey }
  }

  async view(): Promise<SessionView> {
    return await this.#call('GET', '')
  }

  async end(): Promise<SessionView> {
    return await this.#call('POST', '/end')
  }

  /** Everything that was said in it. An export waits until it can be read. */
  async nodes(): Promise<MessageNode[]> {
    const { body } = await request(`${this.#gatewayUrl}/v1/export?session=${this.id}`, {
      headers: { authorization: `Bearer ${adminKey}` },
    })
    await body.dump()
    return [...this.#reader.sessions.nodesOf(this.id)]
  }

  async #call(method: 'GET' | 'POST', path: '' | '/end'): Promise<SessionView> {
    const { body } = await request(`${this.#gatewayUrl}/v1/sessions/${this.id}${path}`, {
      method,
      headers: { authorization: `Bearer ${adminKey}` },
    })
    return (await body.json()) as SessionView
  }
}

/**
 * One gateway for all tests of a `describe`, because a start takes far longer than a test. Each test has a session of its
 * own there, and sessions know nothing of each other.
 */
export function sharedGateway(options: StartOptions): () => GatewayOverSimulator {
  let gateway: GatewayOverSimulator | undefined
  beforeAll(async () => {
    const started = await GatewayOverSimulator.start(options)
    gateway = started
    return () => started[Symbol.asyncDispose]()
  })
  return () => {
    if (!gateway) throw new Error('the gateway is there only while tests run')
    return gateway
  }
}

/** The roles of a conversation without a fork, in order: each message is recorded once and follows the one before it. */
export async function oneBranch(session: TestSession): Promise<string[]> {
  const nodes = await session.nodes()
  expect(nodes.map(({ parent }) => parent)).toEqual(nodes.map((_node, index) => (index === 0 ? null : index - 1)))
  return nodes.map(({ message }) => message.role)
}

/** The replies of a session, each with all of its tokens. */
export async function repliesWithTokens(session: TestSession): Promise<MessageNode[]> {
  const replies = (await session.nodes()).filter(({ sampled }) => sampled)
  for (const { tokens, call } of replies) {
    const output = call?.usage.output
    expect({ ids: tokens?.ids.length, logprobs: tokens?.logprobs.length }).toEqual({ ids: output, logprobs: output })
    expect(tokens?.promptIds?.length).toBe(call?.usage.input)
    expect(output).toBeGreaterThan(0)
  }
  return replies
}
