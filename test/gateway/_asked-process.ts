import { Agent, request, type Dispatcher } from 'undici'
import { processKey } from './_gateway-process.ts'
import type { OpenToAsk } from './_talk.ts'

/** A gateway in another process, asked over connections that end with the scope. */
export class AskedProcess implements OpenToAsk, AsyncDisposable {
  readonly #url: string
  readonly #agent = new Agent()

  constructor(url: string) {
    this.#url = url
  }

  async open(path: string, ask: Parameters<OpenToAsk['open']>[1]): Promise<Dispatcher.ResponseData> {
    const { method = 'POST', body, key = processKey, headers = {} } = ask
    return await request(this.#url + path, {
      dispatcher: this.#agent,
      method,
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', ...headers },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    })
  }

  async json(path: string, body?: unknown): Promise<Record<string, unknown>> {
    const asked = await this.open(path, body === undefined ? { method: 'GET' } : { body })
    return (await asked.body.json()) as Record<string, unknown>
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#agent.destroy()
  }
}
