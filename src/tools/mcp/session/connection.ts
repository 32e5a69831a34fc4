import { MillraceError } from '../../../errors/index.ts'
import {
  Client,
  type JSONRPCMessage,
  ProtocolError,
  type RequestOptions,
  type Transport,
} from '@modelcontextprotocol/client'
import { AbortScope, maxTimerMs, packageVersion, withAbort, timerMs, settlesWithin } from '../../../kit/index.ts'
import type { CatalogueCache, ListedServer } from '../catalogue/catalogue-cache.ts'
import { listTools } from '../catalogue/list-tools.ts'
import {
  type CallOutcome,
  PendingCall,
  PendingCalls,
  type ServerCall,
  type ServerEnding,
  type ServerLink,
} from '../transports/pending-calls.ts'
import type { Json } from '../../../schema/index.ts'
import { rpcErrorOf } from '../transports/rpc-messages.ts'
import type { ServerConfig } from '../config/server-config.ts'
import type { ServerTool } from '../catalogue/tool-catalogue.ts'

/** How long a server that has stopped listening may take to end. */
const endingMs = 500
const pingMs = 5_000

export interface ConnectionOptions {
  readonly server: string
  readonly config: ServerConfig
  readonly link: () => Promise<ServerLink>
  readonly generation: number
  readonly timeoutMs: number
  readonly signal: AbortSignal
  readonly onBegin: (connection: Connection) => void
  readonly onEnd: (connection: Connection) => void
  readonly onListChanged: () => void
  readonly onLost: (connection: Connection, cause: Error) => void
  /** Lists of servers like this one. Only the first connection of a session uses them: after a restart the server lists anew. */
  readonly catalogues?: CatalogueCache | undefined
  /** Makes the error of a failed opening; `closeError` is why the connection could not be closed either. */
  readonly failure: (failed: { error: unknown; ending: ServerEnding | undefined; closeError: unknown }) => Error
}

/**
 * One connection to a server, from its start to its end: one generation of a session. The SDK's client shakes hands, lists and
 * answers what the server asks. Calls of tools bypass it and go straight to the transport: that costs less than half, tells what
 * was written, hears when the stream of a single call ends, and needs no listener on the caller's signal
 * (docs/decisions/0027-mcp-sdk.md has the figures).
 */
export class Connection {
  readonly generation: number
  readonly #server: string
  readonly #config: ServerConfig
  readonly #catalogues: CatalogueCache | undefined
  readonly #link: ServerLink
  readonly #transport: Transport
  readonly #client: Client
  readonly #pending = new PendingCalls()
  readonly #onEnd: (connection: Connection) => void
  #isUsable = true
  /** Whether the server has said that its list changed: its answer to an earlier request may be the old list. */
  #isListStale = false
  #closing: Promise<void> | undefined
  #answering: Promise<boolean> | undefined

  private constructor(link: ServerLink, options: ConnectionOptions) {
    const { server, config, generation, onListChanged, onLost, onEnd, catalogues } = options
    this.generation = generation
    this.#server = server
    this.#config = config
    this.#catalogues = catalogues
    this.#link = link
    this.#onEnd = onEnd
    this.#transport = link.transport
    this.#client = new Client({ name: 'millrace', version: packageVersion() })
    // oxlint-disable-next-line prefer-add-event-listener -- it is no event target
    this.#client.onclose = () => {
      const cause = link.failure ?? new Error('the server closed the connection')
      if (this.#isUsable) onLost(this, cause)
      this.#fail(cause)
    }
    this.#client.setNotificationHandler('notifications/tools/list_changed', () => {
      this.#isListStale = true
      catalogues?.forget(this.#listed)
      onListChanged()
    })
  }

  /** Opens a connection. If it rejects, nothing is left of what was started. */
  static async open(options: ConnectionOptions): Promise<{ connection: Connection; tools: readonly ServerTool[] }> {
    const { link, timeoutMs, signal, onBegin, failure } = options
    const late = (): Error => new Error(`it did not initialise and list its tools within ${timeoutMs} ms`)
    using scope = new AbortScope(signal, timeoutMs, late)
    let connection: Connection | undefined
    try {
      connection = new Connection(await link(), options)
      onBegin(connection)
      return { connection, tools: await withAbort(connection.#open(scope.signal), scope.signal) }
    } catch (thrown) {
      // A server that takes no input any more is about to exit, and how it ended says more than this error.
      if (connection && isUnwritten(thrown)) await connection.#awaitEnd()
      // Read before we close the connection: afterwards it would say that we ended the server.
      const error = connection?.failure ?? thrown
      const exit = connection && { exitCode: connection.ending.exitCode, signal: connection.ending.signal }
      const closeError: unknown = await connection?.close().catch((reason: unknown) => reason)
      signal.throwIfAborted()
      throw failure({ error, ending: connection && { ...connection.ending, ...exit }, closeError })
    }
  }

  async #awaitEnd(): Promise<void> {
    const { ended } = this.#link
    if (ended) await settlesWithin(ended, endingMs)
  }

  /** Whether calls may be made on the connection. An unusable one closes by itself after its last running call. */
  get isUsable(): boolean {
    return this.#isUsable
  }

  get inFlight(): number {
    return this.#pending.size
  }

  get failure(): Error | undefined {
    return this.#link.failure
  }

  get ending(): ServerEnding {
    return this.#link.ending
  }

  /** The leader of the server's process group, where the server is a process of ours. */
  get pid(): number | undefined {
    return this.#link.pid
  }

  /** Makes a call. The outcome never rejects. */
  call(call: ServerCall, timeoutMs: number): Promise<CallOutcome> {
    const pending = new PendingCall(call, timeoutMs, this.#abandon)
    this.#pending.add(pending, this.#server)
    const { id } = pending
    const params = {
      name: call.tool,
      arguments: call.arguments,
      ...(call.onProgress && { _meta: { progressToken: id } }),
    }
    try {
      pending.request = this.#link.sendCall({ jsonrpc: '2.0', id, method: 'tools/call', params }, (outcome) =>
        this.#settle(pending, outcome),
      )
    } catch (error) {
      // The call could not be put into JSON, or its headers are invalid.
      const cause = error instanceof Error ? error : new Error(String(error))
      this.#settle(pending, { kind: 'refused', mayHaveRun: false, cause })
    }
    return pending.outcome
  }

  readonly #abandon = (pending: PendingCall, why: 'timeout' | 'aborted'): void => {
    // A call that still waits for a socket need not be cancelled at the server.
    const wasSent = pending.request?.isSent ?? true
    if (!this.#settle(pending, why === 'timeout' ? { kind: why, wasSent } : { kind: why }) || !wasSent) return
    const params = { requestId: pending.id, reason: why === 'timeout' ? 'it took too long' : 'no longer needed' }
    // Nobody waits for this: a server that cannot be told will not last long.
    this.#transport.send({ jsonrpc: '2.0', method: 'notifications/cancelled', params }).catch(() => {})
  }

  list(signal: AbortSignal, timeoutMs: number): Promise<ServerTool[]> {
    return this.#list({ signal, timeout: timerMs(timeoutMs) })
  }

  /** Whether the server answers now. Callers that ask meanwhile share the answer. */
  answers(): Promise<boolean> {
    this.#answering ??= this.#ping().finally(() => (this.#answering = undefined))
    return this.#answering
  }

  async #ping(): Promise<boolean> {
    if (!this.#isUsable) return false
    try {
      await this.#client.ping({ timeout: pingMs })
      return true
    } catch (error) {
      // A server that does not know pings is there.
      return error instanceof ProtocolError
    }
  }

  retire(): void {
    this.#isUsable = false
    this.#closeIfDone()
  }

  /** A call found the connection broken. Waits for its end, unless the requests of other calls may still be answered. */
  async abandon(): Promise<void> {
    this.retire()
    if (this.inFlight > 0) {
      if (this.#link.hasRequestPerCall) return
      // As in `open`: a server that takes no input is about to exit, and the calls that wait should hear why.
      await this.#awaitEnd()
    }
    await this.close()
  }

  close(): Promise<void> {
    const closing = this.#end()
    this.#fail(this.#link.failure ?? new Error('the connection was closed'))
    return closing
  }

  async #open(signal: AbortSignal): Promise<readonly ServerTool[]> {
    // The scope is the limit; the SDK's own limit of a minute must not come before it.
    const options = { signal, timeout: maxTimerMs }
    await this.#client.connect(this.#transport, options)
    const toClient = this.#transport.onmessage
    // oxlint-disable-next-line prefer-add-event-listener -- it is no event target
    this.#transport.onmessage = (message, extra) => {
      if (!this.#receive(message)) toClient?.(message, extra)
    }
    const known = this.generation === 1 ? this.#catalogues?.get(this.#listed) : undefined
    if (known) return known
    const tools = await this.#list(options)
    if (!this.#isListStale) this.#catalogues?.set(this.#listed, tools)
    return tools
  }

  get #listed(): ListedServer {
    const { name, version } = this.#client.getServerVersion() ?? {}
    return { name: this.#server, config: this.#config, version: JSON.stringify([name, version]) }
  }

  #list(request: RequestOptions): Promise<ServerTool[]> {
    return listTools(this.#client, this.#server, this.#config, request)
  }

  /** Takes a message; false if it is for the SDK. */
  #receive(message: JSONRPCMessage): boolean {
    if ('method' in message) {
      return message.method === 'notifications/progress' && this.#tellProgress(message.params)
    }
    if (!PendingCalls.isOurs(message.id)) return false
    const pending = this.#pending.find(message.id)
    // A call that was abandoned is not pending any more; its late answer is dropped.
    if (!pending) return true
    // Nothing has validated the message yet.
    const { error, result } = message as { readonly error?: Json; readonly result?: unknown }
    const failure = error === undefined ? undefined : rpcErrorOf(error)
    this.#settle(pending, failure ? { kind: 'rpc-error', ...failure } : { kind: 'result', result })
    return true
  }

  #tellProgress(params: Readonly<Record<string, unknown>> | undefined): boolean {
    const token = params?.['progressToken']
    if (!PendingCalls.isOurs(token)) return false
    const { progress, total, message } = params ?? {}
    if (typeof progress !== 'number') return true
    try {
      this.#pending.find(token)?.onProgress?.({
        progress,
        ...(typeof total === 'number' && { total }),
        ...(typeof message === 'string' && { message }),
      })
    } catch {
      // A listener threw into the reader of all answers: the call itself goes on.
    }
    return true
  }

  #settle(pending: PendingCall, outcome: CallOutcome): boolean {
    if (!this.#pending.take(pending)) return false
    if (outcome.kind === 'result' || outcome.kind === 'rpc-error') pending.request?.release()
    else pending.request?.abort()
    pending.settle(outcome)
    if (!this.#isUsable) this.#closeIfDone()
    return true
  }

  #fail(cause: Error): void {
    this.#isUsable = false
    for (const pending of this.#pending.all()) this.#settle(pending, { kind: 'lost', mayHaveRun: true, cause })
    this.#closeIfDone()
  }

  #closeIfDone(): void {
    if (this.#pending.size > 0) return
    // A caller that closes the session, or opens the next connection, waits for the same end and hears if it failed.
    this.#end().catch(() => {})
  }

  #end(): Promise<void> {
    this.#closing ??= this.#closeLink()
    return this.#closing
  }

  async #closeLink(): Promise<void> {
    // In a later microtask, because a transport reports that it is closed while it closes, which leads here again.
    await Promise.resolve()
    await this.#link.close()
    this.#onEnd(this)
  }
}

function isUnwritten(thrown: unknown): boolean {
  return thrown instanceof MillraceError && thrown.data['written'] === false
}
