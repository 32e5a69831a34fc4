import type { Environment } from 'millrace'
import { ScriptedBackend, temporaryRuns, type Script } from 'millrace/testing'
import { type GymOptions, RolloutServer, ServedAgents, type ServedAgentOptions } from '../../../src/serve/index.ts'

type Part = Partial<ServedAgentOptions> & { readonly environment: Environment; readonly script: Script }

/** Several services on one port, each over a script of its own. */
export class TestAgents implements AsyncDisposable {
  readonly agents: ServedAgents
  readonly url: string
  readonly #ends: AsyncDisposableStack

  private constructor(agents: ServedAgents, url: string, ends: AsyncDisposableStack) {
    this.agents = agents
    this.url = url
    this.#ends = ends
  }

  static async start(...parts: readonly Part[]): Promise<TestAgents> {
    return await TestAgents.startWith({}, ...parts)
  }

  static async startWith(http: { readonly nemoGym?: GymOptions }, ...parts: readonly Part[]): Promise<TestAgents> {
    await using ends = new AsyncDisposableStack()
    const { root } = ends.use(await temporaryRuns())
    const agents = ends.use(
      await ServedAgents.open(
        Array.from(parts, ({ script, ...options }) => ({
          model: { name: 'scripted', maxTries: 1, backends: [{ url: 'http://scripted.invalid' }] },
          backends: { scripted: [new ScriptedBackend(script)] },
          preflight: false,
          ...options,
          run: { root, ...options.run },
        })),
      ),
    )
    const httpServer = ends.use(await RolloutServer.open({ service: agents, port: 0, ...http }))
    return new TestAgents(agents, httpServer.url, ends.move())
  }

  async post(path: string, body: unknown): Promise<Response> {
    return await fetch(this.url + path, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    })
  }

  async json(path: string): Promise<unknown> {
    return await (await fetch(this.url + path)).json()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // A reply that still waits would keep the HTTP server open.
    await this.agents.close()
    await this.#ends[Symbol.asyncDispose]()
  }
}
