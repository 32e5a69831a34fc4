import { MillraceError } from '../../../errors/index.ts'
import { AbortScope, backoffMs, raced, sleep, type Backoff } from '../../../kit/index.ts'
import { awayTimeoutOf, serverDefaults } from '../config/server-defaults.ts'
import type { ServerOptions } from '../config/server-config.ts'
import type { ServerEvent } from './server-events.ts'
import { StartBudget } from './_start-budget.ts'

export interface ServerGateOptions {
  /** The server's name in the configuration. */
  readonly server: string
  readonly config: ServerOptions
  readonly onEvent: (event: ServerEvent) => void
  /** The pauses between two probes of a server that is away. */
  readonly probeBackoff?: Backoff
}

/** A caller that needs a connection. */
export interface GateCaller {
  readonly signal: AbortSignal
  /** Called when the caller begins to wait for the server. Returns what to call when the wait is over. */
  readonly onAway?: ((why: MillraceError) => () => void) | undefined
}

interface Outage {
  readonly startedAt: number
  /** The last failure. */
  why: MillraceError
  /** When the next probe is due. */
  dueAt: number
  isProbed: boolean
  /** Resolves when a probe has ended, however it did. */
  probed: PromiseWithResolvers<void>
}

const defaultProbeBackoff: Backoff = { firstMs: 200, factor: 2, maxMs: 5_000 }

/** HTTP statuses by which a server says that it does not want us: it is not away. */
const refusals = new Set<unknown>([401, 403])

/**
 * Stands before one server. Every opening of a connection passes it, of all sessions with the server on this thread.
 *
 * A server that was never open fails its callers, within a `StartBudget`: its configuration may be wrong. A server that was open
 * and cannot be opened again is away. Its callers then wait, and one of them at a time probes it, after pauses that grow. When
 * a probe opens a connection, the others go on; how many open at once the caller limits. The wait ends with the caller's signal,
 * and when the server has been away for `awayTimeoutMs`. From then on callers fail at once, except for one whenever a probe is
 * due. The number of callers that wait has no limit of its own: each is a rollout or a call that its owner has admitted.
 */
export class ServerGate {
  readonly #server: string
  readonly #awayTimeoutMs: number
  readonly #calmMs: number
  readonly #backoff: Backoff
  readonly #onEvent: (event: ServerEvent) => void
  readonly #starts: StartBudget
  #hasOpened = false
  #outage: Outage | undefined
  /** Failures in a row, for the pause before the next probe. A server that is soon away again does not begin anew. */
  #failures = 0
  #backAt = Number.NEGATIVE_INFINITY

  constructor({ server, config, onEvent, probeBackoff = defaultProbeBackoff }: ServerGateOptions) {
    const { reconnect = serverDefaults.reconnect } = config
    this.#server = server
    this.#awayTimeoutMs = awayTimeoutOf(config)
    this.#calmMs = reconnect.windowMs
    this.#backoff = probeBackoff
    this.#onEvent = onEvent
    this.#starts = new StartBudget(reconnect)
  }

  /** Whether callers wait for the server while it is away. */
  get waits(): boolean {
    return this.#awayTimeoutMs > 0
  }

  get hasOpened(): boolean {
    return this.#hasOpened
  }

  /** Why the server is away, and for how long; undefined while it is not. */
  get outage(): { readonly why: MillraceError; readonly ms: number } | undefined {
    return this.#outage && { why: this.#outage.why, ms: performance.now() - this.#outage.startedAt }
  }

  /** The server was opened elsewhere, by another worker: if it cannot be opened here, it is away. */
  noteOpened(): void {
    this.#hasOpened = true
  }

  /** Opens a connection by `connect`, once the server is not away. `connect` may be called several times. */
  async open<T>(connect: () => Promise<T>, { signal, onAway }: GateCaller): Promise<T> {
    let resume: (() => void) | undefined
    try {
      for (;;) {
        const outage = this.#outage
        if (outage) resume ??= onAway?.(outage.why)
        if (outage?.isProbed) await this.#inTime(outage, signal, (bounded) => raced(outage.probed.promise, bounded))
        else {
          const opened = await (outage ? this.#probe(outage, connect, signal) : this.#tryOnce(connect, signal))
          if (opened) return opened.connection
        }
      }
    } finally {
      resume?.()
    }
  }

  /** Undefined if the server is away. */
  async #tryOnce<T>(connect: () => Promise<T>, signal: AbortSignal): Promise<{ readonly connection: T } | undefined> {
    const isDirect = this.#hasOpened && this.waits
    try {
      const connection = await (isDirect ? connect() : this.#starts.start(connect, signal))
      this.#hasOpened = true
      if (this.#outage) this.#end(this.#outage)
      return { connection }
    } catch (error) {
      signal.throwIfAborted()
      const why = this.#awayBecause(error)
      if (!why) throw error
      if (!this.#outage) this.#begin(why)
      return undefined
    }
  }

  /** Tries once, when a probe is due. Undefined if the server is still away. */
  async #probe<T>(
    outage: Outage,
    connect: () => Promise<T>,
    signal: AbortSignal,
  ): Promise<{ readonly connection: T } | undefined> {
    outage.isProbed = true
    try {
      const pauseMs = outage.dueAt - performance.now()
      if (pauseMs > 0) await this.#inTime(outage, signal, (bounded) => sleep(pauseMs, bounded))
      const connection = await connect()
      this.#end(outage)
      return { connection }
    } catch (error) {
      signal.throwIfAborted()
      const why = this.#awayBecause(error)
      if (!why) {
        // The server is there: the others need not wait to be refused as well.
        if (isRefusal(error)) this.#end(outage)
        throw error
      }
      outage.why = why
      outage.dueAt = performance.now() + this.#pauseMs()
      if (this.#leftMs(outage) <= 0) throw this.#tooLate(outage)
      return undefined
    } finally {
      outage.isProbed = false
      const { resolve } = outage.probed
      outage.probed = Promise.withResolvers()
      resolve()
    }
  }

  /** Waits no longer than the signal and the server's time to be away allow. */
  async #inTime(outage: Outage, signal: AbortSignal, wait: (bounded: AbortSignal) => Promise<void>): Promise<void> {
    const leftMs = this.#leftMs(outage)
    if (leftMs <= 0) throw this.#tooLate(outage)
    using scope = new AbortScope(signal, leftMs, () => this.#tooLate(outage))
    await wait(scope.signal)
  }

  #begin(why: MillraceError): void {
    const now = performance.now()
    if (now - this.#backAt > this.#calmMs) this.#failures = 0
    this.#outage = {
      startedAt: now,
      why,
      dueAt: now + this.#pauseMs(),
      isProbed: false,
      probed: Promise.withResolvers(),
    }
    this.#onEvent({ name: 'mcp.away', server: this.#server, cause: why.rawMessage })
  }

  #end(outage: Outage): void {
    if (this.#outage !== outage) return
    this.#outage = undefined
    this.#backAt = performance.now()
    const ms = Math.round(this.#backAt - outage.startedAt)
    this.#onEvent({ name: 'mcp.back', server: this.#server, ms })
  }

  #pauseMs(): number {
    this.#failures += 1
    return backoffMs(this.#backoff, this.#failures)
  }

  #leftMs({ startedAt }: Outage): number {
    return startedAt + this.#awayTimeoutMs - performance.now()
  }

  /** The error, if it means that the server is away and that this is worth waiting for. */
  #awayBecause(error: unknown): MillraceError | undefined {
    if (!this.#hasOpened || !this.waits) return undefined
    if (!(error instanceof MillraceError) || error.code !== 'tool_infra' || isRefusal(error)) return undefined
    const { awayMs, circuitOpen } = error.data
    return awayMs === undefined && circuitOpen !== true ? error : undefined
  }

  #tooLate({ why, startedAt }: Outage): MillraceError {
    const awayMs = Math.round(performance.now() - startedAt)
    return new MillraceError(
      'tool_infra',
      `server '${this.#server}' has been away for ${awayMs} ms, and rollouts wait ${this.#awayTimeoutMs} ms ` +
        `("awayTimeoutMs"). See why it does not answer: ${why.rawMessage}`,
      { data: { ...why.data, awayMs }, cause: why },
    )
  }
}

function isRefusal(error: unknown): boolean {
  return error instanceof MillraceError && refusals.has(error.data['status'])
}
