import type { Readable, Writable } from 'node:stream'
import { serveStdio, StdioServerTransport, type StdioServerHandle } from '@modelcontextprotocol/server/stdio'
import { Resource } from '../../kit/index.ts'
import type { EnvironmentSession } from '../../rollout/index.ts'
import { mcpServer, type ServedTools } from './served-tools.ts'

export interface StdioToolServerOptions {
  readonly tools: ServedTools
  readonly version: string
  readonly input: Readable
  /** Carries the protocol and nothing else. */
  readonly output: Writable
  readonly signal: AbortSignal
  readonly onFault: (error: unknown) => void
}

/** The SDK's transport, which tells when its client has gone. */
class WatchedTransport extends StdioServerTransport {
  readonly #ended = Promise.withResolvers<void>()

  get ended(): Promise<void> {
    return this.#ended.promise
  }

  override async close(): Promise<void> {
    await super.close()
    this.#ended.resolve()
  }
}

/** An environment's tools for one client, on a pair of streams: one session, from the start to the end of the process. */
export class StdioToolServer extends Resource {
  readonly #session: EnvironmentSession
  readonly #transport: WatchedTransport
  readonly #handle: StdioServerHandle

  private constructor(session: EnvironmentSession, { tools, input, output, version, onFault }: StdioToolServerOptions) {
    super()
    this.#session = session
    this.#transport = new WatchedTransport(input, output)
    // Asked for a server once or, by clients that first ask what there is, twice. The session is the same.
    this.#handle = serveStdio(() => mcpServer(tools, session, version), {
      transport: this.#transport,
      onerror: onFault,
    })
  }

  /** Sets the environment up first: a client that is answered at all can call. */
  static async open(options: StdioToolServerOptions): Promise<StdioToolServer> {
    const session = await options.tools.session({ id: 'stdio', signal: options.signal })
    return new StdioToolServer(session, options)
  }

  get ended(): Promise<void> {
    return this.#transport.ended
  }

  protected async onClose(): Promise<void> {
    await using parts = new AsyncDisposableStack()
    parts.use(this.#session)
    parts.defer(() => this.#handle.close())
  }
}
