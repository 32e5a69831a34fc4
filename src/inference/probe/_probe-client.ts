import { closeAll, jsonOrText, Resource, type Variables } from '../../kit/index.ts'
import { Connections } from '../http/connections.ts'
import { readShortAnswer } from '../http/short-answer.ts'
import type { ResponseHeaders } from '../wire/retry-after.ts'
import type { Source } from '../wire/source.ts'
import { transportError } from '../http/transport-error.ts'

export interface ProbeClientOptions {
  readonly url: URL
  readonly source: Source
  readonly headers: readonly string[]
  readonly caFile: string | undefined
  readonly env: Variables
  /** Ends every request; the requests reject with its reason. */
  readonly signal: AbortSignal
}

export interface ProbeAnswer {
  readonly status: number
  readonly headers: ResponseHeaders
  /** The body: parsed if it is JSON, else its text. */
  readonly document: unknown
}

/** A probe makes only a few small requests at once. */
const connections = 4
const connectTimeoutMs = 10_000

/** Sends the requests of a probe, which are not for turns, to a server of which nothing is known yet. */
export class ProbeClient extends Resource {
  readonly #options: ProbeClientOptions
  readonly #connections: Connections

  constructor(options: ProbeClientOptions) {
    super()
    this.#options = options
    const { url, caFile, env } = options
    this.#connections = new Connections({ url, connections, connectTimeoutMs, caFile, env })
  }

  /** Asks for a path that begins at the server's root. Rejects if there is no answer at all. */
  get(path: string): Promise<ProbeAnswer> {
    return this.#ask('GET', path)
  }

  post(path: string, body: object): Promise<ProbeAnswer> {
    return this.#ask('POST', path, JSON.stringify(body))
  }

  protected override onClose(): Promise<void> {
    return closeAll([this.#connections])
  }

  async #ask(method: 'GET' | 'POST', path: string, body?: string): Promise<ProbeAnswer> {
    const { url, headers, signal, source } = this.#options
    try {
      const response = await this.#connections.pick().dispatcher.request({
        origin: url.origin,
        path: path + url.search,
        method,
        headers: [...headers],
        ...(body !== undefined && { body }),
        signal,
      })
      const text = await readShortAnswer(response.body, source)
      return { status: response.statusCode, headers: response.headers, document: jsonOrText(text) }
    } catch (error) {
      signal.throwIfAborted()
      throw transportError(source, error)
    }
  }
}
