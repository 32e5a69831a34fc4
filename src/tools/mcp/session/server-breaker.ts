import { MillraceError } from '../../../errors/index.ts'
import { AbortScope, type Backoff, backoffMs, withAbort, sleep } from '../../../kit/index.ts'
import { awayTimeoutOf, serverDefaults, type ServerOptions } from '../config/server-config.ts'
import type { ServerCall } from '../transports/pending-calls.ts'
import type { ServerEvent } from './server-events.ts'

interface ServerBreakerOptions {
  readonly server: string
  readonly config: ServerOptions
  readonly onEvent: (event: ServerEvent) => void
  readonly probeBackoff?: Backoff
}

/** From the first failure until the server is open again. */
interface Outage {
  readonly startedAt: number
  why: MillraceError
  dueAt: number
  /** Whether callers wait for the server, and its owner was told. */
  isAway: boolean
  isProbed: boolean
  /** Resolves when a probe has ended: to its failure, or to undefined if it opened a connection or was left. */
  probed: PromiseWithResolvers<MillraceError | undefined>
}

const defaultProbeBackoff: Backoff = { firstMs: 200, factor: 2, maxMs: 5_000 }

/** HTTP statuses by which a server says that it does not want us: it is not away. */
const refusals = new Set<unknown>([401, 403])

/**
 * The circuit breaker of one server. Every opening of a connection passes it, of all sessions with the server on this thread. As
 * long as openings go well, every caller opens its own. After a failure one caller at a time probes the server, after pauses that
 * grow, and the others wait for the result. Otherwise 1,000 rollouts would start a broken server 1,000 times.
 *
 * A server that was never open fails its callers: its configuration may be wrong. All who wait get the failure of the probe, and
 * after too many failures within `reconnect.windowMs` callers get the last one at once. A server that was open and cannot be
 * opened again is away: its callers wait on. When a probe opens a connection, the others go on; how many open at once the caller
 * limits. The wait ends with the caller's signal, and when the server has been away for `awayTimeoutMs`. From then on callers fail
 * at once, except for one whenever a probe is due. The number of callers that wait has no limit of its own: each is a rollout or a
 * call that its owner has admitted.
 */
export class ServerBreaker {
  readonly #server: string
  readonly #awayTimeoutMs: number
  readonly #calmMs: number
  readonly #backoff: Backoff
  readonly #onEvent: (event: ServerEvent) => void
  /** The failures of a server that was never open, and how many of them are too many. */
  readonly #failedStarts: AttemptLimit
  #hasOpened = false
  #outage: Outage | undefined
  /** Failures in a row, for the pause before the next probe. A server that is soon away again does not begin anew. */
  #failures = 0
  #backAt = Number.NEGATIVE_INFINITY

  constructor({ server, config, onEvent, probeBackoff = defaultProbeBackoff }: ServerBreakerOptions) {
    const { max, windowMs } = config.reconnect ?? serverDefaults.reconnect
    this.#server = server
    this.#awayTimeoutMs = awayTimeoutOf(config)
    this.#calmMs = windowMs
    this.#backoff = probeBackoff
    this.#onEvent = onEvent
    this.#failedStarts = new AttemptLimit({ max: max + 1, windowMs })
  }

  get waits(): boolean {
    return this.#awayTimeoutMs > 0
  }

  get hasOpened(): boolean {
    return this.#hasOpened
  }

  /** Why the server is away, and for how long; undefined while it is not. */
  get outage(): { readonly why: MillraceError; readonly ms: number } | undefined {
    const outage = this.#outage
    return outage?.isAway ? { why: outage.why, ms: performance.now() - outage.startedAt } : undefined
  }

  /** The server was opened elsewhere, by another worker: if it cannot be opened here, it is away. */
  noteOpened(): void {
    this.#hasOpened = true
  }

  /** Opens a connection by `connect`, once the server is not away. `connect` may be called several times. */
  async open<T>(
    connect: () => Promise<T>,
    { signal, onAway }: { readonly signal: AbortSignal; readonly onAway?: ServerCall['onAway'] | undefined },
  ): Promise<T> {
    let resume: (() => void) | undefined
    try {
      for (;;) {
        const outage = this.#outage
        if (outage?.isAway) resume ??= onAway?.(outage.why)
        if (outage?.isProbed) {
          const failure = await this.#inTime(outage, signal, (bounded) => withAbort(outage.probed.promise, bounded))
          if (failure && !this.#isPatient) throw failure
        } else {
          const opened = await (outage ? this.#probe(outage, connect, signal) : this.#try(connect, signal))
          if (opened) return opened.connection
        }
      }
    } finally {
      resume?.()
    }
  }

  /** Whether a failure means that the server is away. */
  get #isPatient(): boolean {
    return this.#hasOpened && this.waits
  }

  /** Tries once, when a probe is due. Undefined if the server is still away. */
  async #probe<T>(
    outage: Outage,
    connect: () => Promise<T>,
    signal: AbortSignal,
  ): Promise<{ connection: T } | undefined> {
    if (!this.#isPatient && this.#failedStarts.waitMs > 0) throw outage.why
    outage.isProbed = true
    const { why } = outage
    try {
      const pauseMs = outage.dueAt - performance.now()
      if (pauseMs > 0) await this.#inTime(outage, signal, (bounded) => sleep(pauseMs, bounded))
      const opened = await this.#try(connect, signal, outage)
      if (!opened && this.#leftMs(outage) <= 0) throw this.#tooLate(outage)
      return opened
    } finally {
      outage.isProbed = false
      const { resolve } = outage.probed
      outage.probed = Promise.withResolvers()
      resolve(outage.why === why ? undefined : outage.why)
    }
  }

  /** Undefined if the server is away. `probed` is the outage that a probe is to end. */
  async #try<T>(
    connect: () => Promise<T>,
    signal: AbortSignal,
    probed?: Outage,
  ): Promise<{ connection: T } | undefined> {
    try {
      const connection = await connect()
      this.#hasOpened = true
      this.#end()
      return { connection }
    } catch (error) {
      signal.throwIfAborted()
      const failure = MillraceError.from(error, 'tool_infra')
      if (this.#isPatient && !isOutage(failure)) {
        // A server that refuses us is there: the others need not wait to be refused as well.
        if (probed && isRefusal(failure)) this.#end()
        throw error
      }
      // Openings that ran side by side failed for one reason, and count as one.
      if (this.#outage === probed) this.#fail(failure)
      if (!this.#isPatient) throw failure
      return undefined
    }
  }

  /** Waits no longer than the signal and the server's time to be away allow. */
  async #inTime<T>(outage: Outage, signal: AbortSignal, wait: (bounded: AbortSignal) => Promise<T>): Promise<T> {
    if (!outage.isAway) return await wait(signal)
    const leftMs = this.#leftMs(outage)
    if (leftMs <= 0) throw this.#tooLate(outage)
    using scope = new AbortScope(signal, leftMs, () => this.#tooLate(outage))
    return await wait(scope.signal)
  }

  #fail(why: MillraceError): void {
    const now = performance.now()
    if (!this.#outage && now - this.#backAt > this.#calmMs) this.#failures = 0
    this.#failures += 1
    const dueAt = now + backoffMs(this.#backoff, this.#failures)
    const probed = Promise.withResolvers<MillraceError | undefined>()
    const outage = (this.#outage ??= { startedAt: now, why, dueAt, isAway: false, isProbed: false, probed })
    Object.assign(outage, { why, dueAt })
    if (!this.#isPatient) this.#failedStarts.take()
    else if (!outage.isAway) {
      outage.isAway = true
      this.#onEvent({ name: 'mcp.away', server: this.#server, cause: why.rawMessage })
    }
  }

  #end(): void {
    const outage = this.#outage
    if (!outage) return
    this.#outage = undefined
    this.#failedStarts.clear()
    this.#backAt = performance.now()
    const ms = Math.round(this.#backAt - outage.startedAt)
    if (outage.isAway) this.#onEvent({ name: 'mcp.back', server: this.#server, ms })
  }

  #leftMs({ startedAt }: Outage): number {
    return startedAt + this.#awayTimeoutMs - performance.now()
  }

  #tooLate({ why, startedAt }: Outage): MillraceError {
    const awayMs = Math.round(performance.now() - startedAt)
    return new MillraceError(
      'tool_infra',
      `server '${this.#server}' has been away for ${awayMs} ms, and rollouts wait ${this.#awayTimeoutMs} ms ` +
        `("awayTimeoutMs"). Find out why it does not answer: ${why.rawMessage}`,
      { data: { ...why.data, awayMs }, cause: why },
    )
  }
}

/** Whether a failure means that a server which was open is away, and that this is worth waiting for. */
function isOutage(failure: MillraceError): boolean {
  const { awayMs, circuitOpen } = failure.data
  return failure.code === 'tool_infra' && !isRefusal(failure) && awayMs === undefined && circuitOpen !== true
}

function isRefusal({ data }: MillraceError): boolean {
  return refusals.has(data['status'])
}

type AttemptLimits = NonNullable<ServerOptions['reconnect']>

const backoff = { firstMs: 250, maxMs: 5000, factor: 4 }

/**
 * How many attempts may be made within a window. The first one waits for nothing; each further one in the same window waits
 * longer. Once all are used up, `waitMs` says for how long. A session counts how often it was opened again, well or not: against
 * servers that crash over and over. A `ServerBreaker` counts the starts that failed of a server that was never open. The two are
 * apart: every process of a pool is a first start, and a server that crashes in each call starts well each time.
 */
export class AttemptLimit {
  readonly #limits: AttemptLimits
  readonly #now: () => number
  /** When the last attempts were made, oldest first; at most `max`. */
  readonly #attempts: number[] = []

  constructor(limits: AttemptLimits, now: () => number = () => performance.now()) {
    this.#limits = limits
    this.#now = now
  }

  get limits(): AttemptLimits {
    return this.#limits
  }

  /** The time until another attempt may be made: 0 if now, infinite if never. */
  get waitMs(): number {
    this.#forget()
    if (this.#limits.max <= 0) return Number.POSITIVE_INFINITY
    if (this.#attempts.length < this.#limits.max) return 0
    return (this.#attempts[0] ?? 0) + this.#limits.windowMs - this.#now()
  }

  /** Counts an attempt; returns how long to wait before it is made. */
  take(): number {
    this.#forget()
    const earlier = this.#attempts.length
    this.#attempts.push(this.#now())
    if (this.#attempts.length > this.#limits.max) this.#attempts.shift()
    return earlier === 0 ? 0 : backoffMs(backoff, earlier)
  }

  clear(): void {
    this.#attempts.length = 0
  }

  #forget(): void {
    const since = this.#now() - this.#limits.windowMs
    while ((this.#attempts[0] ?? Number.POSITIVE_INFINITY) <= since) this.#attempts.shift()
  }
}
