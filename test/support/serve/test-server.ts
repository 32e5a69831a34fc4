import { createInterface } from 'node:readline'
import type { Readable } from 'node:stream'
import { defineEnvironment, textOf, z, type Message } from 'millrace'
import { ScriptedBackend, temporaryRuns, type Script } from 'millrace/testing'
import { Agent, request, type Dispatcher } from 'undici'
import { type GymOptions, RolloutServer, RolloutService, type ServiceOptions } from '../../../src/serve/index.ts'

/** One turn: the model is shown a word. */
export const wordEnvironment = defineEnvironment({
  name: 'words',
  task: z.object({ word: z.string() }),
  tasks: () => [],
  prompt: ({ task }) => task.word,
  reward: ({ task, answer }) => answer.includes(task.word),
})

export interface Reply {
  readonly status: number
  readonly headers: Record<string, string | string[] | undefined>
  // What a test looks into; it says itself what it expects there.
  readonly body: Record<string, unknown>
}

export type RecordLine = Record<string, unknown> & { id: string; outcome: string; answer: string | null }

/** A server over a script, on a port of its own, in a folder of its own unless one is given. */
export class TestServer implements AsyncDisposable {
  readonly service: RolloutService
  readonly httpServer: RolloutServer
  readonly backend: ScriptedBackend
  readonly #ends: AsyncDisposableStack
  /** Connections of its own, so that nothing of one test is left to another. */
  readonly #agent = new Agent()

  private constructor(parts: Pick<TestServer, 'service' | 'httpServer' | 'backend'>, ends: AsyncDisposableStack) {
    this.service = parts.service
    this.httpServer = parts.httpServer
    this.backend = parts.backend
    this.#ends = ends
  }

  static async start(
    script: Script,
    options: Partial<ServiceOptions> & {
      readonly accessKey?: string
      readonly nemoGym?: GymOptions
    } = {},
  ): Promise<TestServer> {
    const { accessKey, nemoGym, ...more } = options
    await using ends = new AsyncDisposableStack()
    const backend = new ScriptedBackend(script)
    const root = options.run?.root ?? ends.use(await temporaryRuns()).root
    const service = ends.use(
      await RolloutService.open({
        environment: wordEnvironment,
        model: { name: 'scripted', maxTries: 1, backends: [{ url: 'http://scripted.invalid' }] },
        backends: { scripted: [backend] },
        preflight: false,
        ...more,
        run: { ...options.run, root },
      }),
    )
    const httpServer = ends.use(
      await RolloutServer.open({
        service,
        port: 0,
        ...(accessKey !== undefined && { accessKey }),
        ...(nemoGym && { nemoGym }),
      }),
    )
    return new TestServer({ service, httpServer, backend }, ends.move())
  }

  async post(body: unknown, headers: Record<string, string> = {}): Promise<Reply> {
    return await replyOf(await this.open(body, headers))
  }

  /** A request whose reply is read as it comes. */
  async open(body: unknown, headers: Record<string, string> = {}): Promise<Dispatcher.ResponseData> {
    return await request(`${this.httpServer.url}/v1/rollouts`, {
      dispatcher: this.#agent,
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body: typeof body === 'string' ? body : JSON.stringify(body),
    })
  }

  async lines(body: unknown): Promise<RecordLine[]> {
    const { body: stream } = await this.open(body)
    return (await stream.text())
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as RecordLine)
  }

  async get(path: string, headers: Record<string, string> = {}): Promise<Reply> {
    return await replyOf(await request(`${this.httpServer.url}${path}`, { dispatcher: this.#agent, headers }))
  }

  async text(path: string, headers: Record<string, string> = {}): Promise<string> {
    const { body } = await request(`${this.httpServer.url}${path}`, { dispatcher: this.#agent, headers })
    return await body.text()
  }

  async bytes(path: string): Promise<Uint8Array> {
    const { body } = await request(`${this.httpServer.url}${path}`, { dispatcher: this.#agent })
    return await body.bytes()
  }

  async delete(path: string): Promise<Reply> {
    return await this.send('DELETE', path)
  }

  async send(method: 'GET' | 'POST' | 'PUT' | 'DELETE', path: string, body?: unknown): Promise<Reply> {
    const sent =
      body === undefined ? {} : { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } }
    return await replyOf(await request(`${this.httpServer.url}${path}`, { dispatcher: this.#agent, method, ...sent }))
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // The service first: a reply that still waits would keep the HTTP server open.
    await this.service.close()
    await this.#agent.destroy()
    await this.#ends[Symbol.asyncDispose]()
  }
}

async function replyOf({ statusCode, headers, body }: Dispatcher.ResponseData): Promise<Reply> {
  const text = await body.text()
  const isJson = String(headers['content-type']).startsWith('application/json')
  return { status: statusCode, headers, body: (isJson ? JSON.parse(text) : {}) as Record<string, unknown> }
}

/** The lines of a reply as they arrive. */
export function linesOf(body: Readable): AsyncIterator<string> {
  return createInterface({ input: body })[Symbol.asyncIterator]()
}

/** A script that answers a word when it is told to: `answers.release('apple')`. */
export class HeldAnswers {
  readonly asked = new Set<string>()
  readonly aborted = new Set<string>()
  readonly #released = new Map<string, PromiseWithResolvers<string>>()

  readonly script: Script = async ({ messages, signal }) => {
    const word = lastText(messages)
    this.asked.add(word)
    signal.addEventListener('abort', () => {
      this.aborted.add(word)
      this.#gate(word).reject(signal.reason)
    })
    return await this.#gate(word).promise
  }

  release(...words: readonly string[]): void {
    for (const word of words) this.#gate(word).resolve(`you said ${word}`)
  }

  #gate(word: string): PromiseWithResolvers<string> {
    const known = this.#released.get(word)
    if (known) return known
    const gate = Promise.withResolvers<string>()
    gate.promise.catch(() => {})
    this.#released.set(word, gate)
    return gate
  }
}

export const echo: Script = ({ messages }) => `you said ${lastText(messages)}`

function lastText(messages: readonly Message[]): string {
  const last = messages.at(-1)
  return last ? textOf(last) : ''
}
