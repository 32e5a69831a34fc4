import { randomUUID } from 'node:crypto'
import { WebStandardStreamableHTTPServerTransport, type Server } from '@modelcontextprotocol/server'
import { closeAll, Resource, timerMs } from '../../kit/index.ts'
import { mcpServer } from './_mcp-server.ts'
import { EnvironmentSession } from './environment-session.ts'
import type { ServedTools } from './served-tools.ts'

export interface HttpSessionOptions {
  readonly tools: ServedTools
  readonly version: string
  readonly idleMs: number
  readonly signal: AbortSignal
  readonly onFault: (error: unknown) => void
}

/** One client of the door: its session, and the SDK's end of the connection. Closes itself when nobody asked for anything for long. */
export class HttpSession extends Resource {
  readonly id: string
  readonly #session: EnvironmentSession
  readonly #server: Server
  readonly #transport: WebStandardStreamableHTTPServerTransport
  readonly #options: HttpSessionOptions
  /** Requests being answered, streams of events among them. */
  #exchanges = 0
  #idle: NodeJS.Timeout | undefined

  private constructor(id: string, session: EnvironmentSession, options: HttpSessionOptions) {
    super()
    this.id = id
    this.#session = session
    this.#options = options
    this.#server = mcpServer(session, options.version)
    this.#transport = new WebStandardStreamableHTTPServerTransport({
      sessionIdGenerator: () => id,
      onsessionclosed: () => this.end(),
    })
  }

  static async open(options: HttpSessionOptions): Promise<HttpSession> {
    const id = randomUUID()
    const session = await EnvironmentSession.open(options.tools, { id, signal: options.signal })
    const made = new HttpSession(id, session, options)
    try {
      await made.#server.connect(made.#transport)
      return made
    } catch (error) {
      await made.close()
      throw error
    }
  }

  /** Asks for an answer, sends it, and is busy all the while. */
  async answer(
    { request, body }: { readonly request: Request; readonly body: unknown },
    send: (response: Response) => Promise<void>,
  ): Promise<void> {
    this.#exchanges += 1
    clearTimeout(this.#idle)
    try {
      await send(await this.#transport.handleRequest(request, { parsedBody: body }))
    } finally {
      this.#exchanges -= 1
      this.#watchIdle()
    }
  }

  /** Closes; a `teardown` that fails is nobody's answer. */
  async end(): Promise<void> {
    await this.close().catch(this.#options.onFault)
  }

  protected onClose(): Promise<void> {
    clearTimeout(this.#idle)
    return closeAll([this.#session, { [Symbol.asyncDispose]: () => this.#server.close() }])
  }

  #watchIdle(): void {
    if (this.isClosed || this.#exchanges > 0) return
    this.#idle = setTimeout(() => void this.end(), timerMs(this.#options.idleMs))
  }
}
