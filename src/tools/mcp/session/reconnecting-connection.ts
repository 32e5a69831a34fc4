import { MillraceError } from '../../../errors/index.ts'
import { Resource, type Semaphore, sleep, closeTogether } from '../../../kit/index.ts'
import type { CatalogueCache } from '../catalogue/catalogue-cache.ts'
import { Connection } from './connection.ts'
import { statusOf } from '../transports/call-failure.ts'
import { httpLink } from '../transports/http-transport.ts'
import { stdioLink } from '../transports/stdio-transport.ts'
import { OfferedTools, type ServerTool } from '../catalogue/tool-catalogue.ts'
import { AttemptLimit, type ServerBreaker } from './server-breaker.ts'
import { RecycleClock, DebouncedRefresh } from './recycle-clock.ts'
import { type ServerConfig, serverDefaults } from '../config/server-config.ts'
import type { ServerEnding } from '../transports/pending-calls.ts'
import type { SessionErrors } from './session-state.ts'
import { SingleFlight } from './single-flight.ts'
import type { ServerEvent } from './server-events.ts'

export interface ReconnectingConnectionOptions {
  readonly name: string
  readonly config: ServerConfig
  /** How many servers may start at once. A permit is held while this one starts. */
  readonly starts: Semaphore
  readonly onEvent: (event: ServerEvent) => void
  /** Lists of servers like this one; without them the server itself is asked. */
  readonly catalogues?: CatalogueCache
  /** Where calls wait while the server is away; without one they fail. */
  readonly breaker?: ServerBreaker
}

/** `lost`: the connection ended by itself; the next call opens another, within the budget. */
export type ConnectionState = 'closed' | 'opening' | 'open' | 'lost' | 'reconnecting'

type Flight = SingleFlight<Connection>

/**
 * Provides a connection to a server whenever one is asked for: opens it once for all who ask, opens another when it is lost,
 * within a budget, and replaces it when it has grown old. There are never two at once, except while calls on the earlier one come
 * to their end.
 */
export class ReconnectingConnection extends Resource {
  readonly tools: OfferedTools
  readonly #options: ReconnectingConnectionOptions
  readonly #errors: SessionErrors
  readonly #startTimeoutMs: number
  readonly #budget: AttemptLimit
  readonly #refresh = new DebouncedRefresh(() => this.#relist())
  /** All connections that have not ended: the present one, and earlier ones on which calls still run. */
  readonly #unended = new Set<Connection>()
  /** The present connection, or the last one, unless that only waits for its last calls. */
  #connection: Connection | undefined
  #clock: RecycleClock | undefined
  #flight: Flight | undefined
  #generation = 0
  /** Why the last connection ended or could not be opened; undefined if nothing went wrong. */
  #trouble: string | undefined
  #isCircuitOpen = false
  /** Whether the connection that is being opened has said that its list changed. */
  #isListStale = false
  /** Why the present connection is to be replaced as soon as the one before has ended. */
  #overdue: 'idle' | 'lifetime' | undefined

  constructor(options: ReconnectingConnectionOptions, errors: SessionErrors) {
    super()
    const { name, config } = options
    this.#options = options
    this.#errors = errors
    this.tools = new OfferedTools(name, config)
    this.#startTimeoutMs = config.startTimeoutMs ?? serverDefaults.startTimeoutMs
    this.#budget = new AttemptLimit(config.reconnect ?? serverDefaults.reconnect)
  }

  get generation(): number {
    return this.#generation
  }

  get usable(): Connection | undefined {
    return this.#connection?.isUsable === true && !this.isClosed ? this.#connection : undefined
  }

  get state(): ConnectionState {
    if (this.isClosed) return 'closed'
    if (this.usable) return 'open'
    if (this.#flight) return this.#generation === 0 ? 'opening' : 'reconnecting'
    return this.#trouble === undefined || this.#generation === 0 ? 'closed' : 'lost'
  }

  get trouble(): string | undefined {
    return this.#trouble
  }

  get ending(): ServerEnding | undefined {
    return this.#connection?.ending
  }

  /** Opens the connection for callers that may want to call. An opening that everybody has left is stopped. */
  async open(signal?: AbortSignal): Promise<void> {
    // A rollout that opens a connection which an earlier one has lost causes a reconnect, and that counts.
    const isCounted = this.#generation > 0 && this.#trouble !== undefined
    await this.#connected(isCounted, (flight) => flight.join(signal))
  }

  /** A connection for a call. The opening goes on if this call leaves, since the next call needs it, too. */
  reach(signal: AbortSignal): Promise<Connection> {
    return this.#connected(this.#trouble !== undefined, (flight) => flight.keep(signal))
  }

  used(connection: Connection): void {
    if (connection === this.#connection) this.#clock?.used()
  }

  /** The next one counts against the budget. The first cause is kept; the server's own exit code says more than any. */
  noteLoss(connection: Connection, cause: Error): void {
    if (connection !== this.#connection) return
    const ownEnd = connection.ending.exitCode ? connection.failure : undefined
    if (this.#trouble === undefined || ownEnd) this.#trouble = this.#errors.text(ownEnd ?? cause)
  }

  protected override async onClose(): Promise<void> {
    this.#refresh.cancel()
    this.#clock?.stop()
    // Calls on all connections get the change at once. An opening has seen the signal, and closes its connection itself.
    await Promise.allSettled([closeTogether(this.#unended), this.#flight?.settled()])
    // Connections that are still there could not be ended, and say why.
    await closeTogether(this.#unended)
  }

  /** `wait` is how the caller waits for a connection that is being opened. */
  async #connected(isCounted: boolean, wait: (flight: Flight) => Promise<Connection>): Promise<Connection> {
    for (;;) {
      this.throwIfClosed()
      if (this.usable) return this.usable
      const flight = this.#flight ?? this.#takeOff(isCounted)
      if (!flight.isAbandoned) return await wait(flight)
      await flight.settled()
    }
  }

  #takeOff(isCounted: boolean): Flight {
    // Probes of a server that is away are not counted: the breaker spaces them out.
    const isProbe = this.#options.breaker?.outage !== undefined
    const delayMs = isCounted && !isProbe ? this.#spend() : 0
    this.#isListStale = false
    const flight = new SingleFlight(this.closedSignal, async (signal) => {
      try {
        return await this.#start(signal, delayMs)
      } finally {
        this.#flight = undefined
      }
    })
    this.#flight = flight
    return flight
  }

  /** Takes an attempt from the budget; returns how long to wait before it. */
  #spend(): number {
    const { waitMs, limits } = this.#budget
    if (waitMs === 0) {
      this.#isCircuitOpen = false
      return this.#budget.take()
    }
    const { name: server, config, breaker } = this.#options
    const cause = this.#trouble ?? 'unknown'
    // A shared server that dies over and over is away for everybody. A session that a rollout has alone fails it.
    const isAway = breaker?.waits === true && config.sharing === 'shared' && Number.isFinite(waitMs)
    if (!this.#isCircuitOpen && !isAway) this.#options.onEvent({ name: 'mcp.circuit_open', server, cause })
    this.#isCircuitOpen = true
    const often = `it was reopened ${limits.max} times within ${limits.windowMs} ms`
    const next = Number.isFinite(waitMs)
      ? `the next try is possible in ${Math.ceil(waitMs)} ms`
      : 'reconnect.max allows none'
    const what = isAway ? often : `${often}; ${next}`
    throw new MillraceError(
      'tool_infra',
      `${what}. The last failure was: ${cause}`,
      isAway ? {} : { data: { circuitOpen: true } },
    )
  }

  async #start(signal: AbortSignal, delayMs: number): Promise<Connection> {
    const startedAt = performance.now()
    const before = this.#trouble
    try {
      // So that there are never two processes; a connection that only waits for its last calls is not waited for.
      await this.#connection?.abandon()
      if (delayMs > 0) await sleep(delayMs, signal)
      const { connection, tools } = await this.#openNext(signal, startedAt)
      if (signal.aborted || !connection.isUsable) {
        await connection.close()
        throw signal.aborted ? signal.reason : (connection.failure ?? new Error('it ended as soon as it was open'))
      }
      this.#adopt(connection, tools)
      this.#tellStart(startedAt, before)
      return connection
    } catch (error) {
      // If nobody wants the connection any more, that is no failure of the server.
      if (!signal.aborted) {
        this.#trouble = this.#errors.text(error)
        this.#tellStart(startedAt, before, this.#trouble)
      }
      throw error
    }
  }

  async #openNext(signal: AbortSignal, startedAt: number): ReturnType<typeof Connection.open> {
    const { name: server, config, starts, catalogues } = this.#options
    await starts.acquire(signal)
    try {
      return await Connection.open({
        server,
        config,
        link: async () => ('url' in config ? httpLink(config) : await stdioLink(server, config)),
        generation: this.#generation + 1,
        timeoutMs: this.#startTimeoutMs,
        signal,
        onBegin: (connection) => this.#unended.add(connection),
        onEnd: (connection) => this.#ended(connection),
        onListChanged: () => this.#listChanged(),
        onLost: (connection, cause) => this.noteLoss(connection, cause),
        catalogues,
        failure: ({ error, ending, closeError }) => {
          const unclosed = closeError === undefined ? '' : `. Closing it also failed: ${this.#errors.text(closeError)}`
          return this.#errors.infra(
            `server '${server}' could not be opened: ${this.#errors.text(error)}${unclosed}`,
            {
              server,
              generation: this.#generation,
              ending,
              elapsedMs: performance.now() - startedAt,
              status: statusOf(error),
            },
            error,
          )
        },
      })
    } finally {
      starts.release()
    }
  }

  #tellStart(startedAt: number, before: string | undefined, failure?: string): void {
    const ok = failure === undefined
    const ms = Math.round(performance.now() - startedAt)
    const { name: server, onEvent } = this.#options
    if (before !== undefined && this.#generation > (ok ? 1 : 0)) {
      const cause = failure ?? before
      onEvent({ name: 'mcp.reconnect', server, ok, ms, generation: this.#generation, cause })
    } else onEvent({ name: 'mcp.open', server, ok, ms, ...(failure !== undefined && { cause: failure }) })
  }

  #adopt(connection: Connection, tools: readonly ServerTool[]): void {
    this.#generation = connection.generation
    this.#connection = connection
    this.#trouble = undefined
    this.#overdue = undefined
    this.#clock?.stop()
    this.#clock = new RecycleClock(
      this.#options.config,
      () => connection.inFlight,
      (why) => this.#recycle(connection, why),
    )
    this.#learn(tools)
    if (this.#isListStale) this.#refresh.ask()
  }

  /** Closes the connection for now: the next call opens another, which does not count as a loss. Running calls may end. */
  #recycle(connection: Connection, why: 'idle' | 'lifetime'): void {
    if (connection !== this.usable) return
    // Only one connection at a time may wait for its last calls: no more than two processes, however short their life.
    if (this.#unended.size > 1) {
      this.#overdue = why
      return
    }
    connection.retire()
    if (connection.inFlight > 0) this.#connection = undefined
    this.#options.onEvent({ name: 'mcp.recycled', server: this.#options.name, why })
  }

  #ended(connection: Connection): void {
    this.#unended.delete(connection)
    const { usable } = this
    const why = this.#overdue
    this.#overdue = undefined
    if (usable && why) this.#recycle(usable, why)
  }

  #listChanged(): void {
    if (this.#flight) this.#isListStale = true
    else this.#refresh.ask()
  }

  async #relist(): Promise<void> {
    const connection = this.usable
    if (!connection) return
    try {
      const tools = await connection.list(this.closedSignal, this.#startTimeoutMs)
      if (connection === this.usable) this.#learn(tools)
    } catch {
      // The known list stays; if the server is gone, the next call finds out and the list is read again.
    }
  }

  #learn(listed: readonly ServerTool[]): void {
    const change = this.tools.learn(listed)
    if (change) this.#options.onEvent(change)
  }
}
