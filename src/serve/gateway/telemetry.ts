import { MillraceError } from '../../errors/index.ts'
import { type GatewayEvent, gatewayEvents, type InteractionEndEvent } from '../../gateway/index.ts'
import { EventChannel } from '../../kit/index.ts'
import type { ClientApi } from '../../schema/index.ts'
import type { LoggedRequest, MetricsRegistry } from '../../telemetry/index.ts'

interface GatewayListeners {
  readonly folder: string
  readonly registry: MetricsRegistry
  readonly onRequest?: ((request: LoggedRequest) => void) | undefined
  readonly onFault?: ((error: MillraceError) => void) | undefined
  readonly onFleetAlarm?: ((message: string) => void) | undefined
  readonly onAlarm?: ((session: string, alarms: readonly string[]) => void) | undefined
  /** A model's 1st, 10th, 100th… turn whose prompt does not begin with the tokens of the turn before it. */
  readonly onDrift?: ((drift: TokenDrift) => void) | undefined
}

export interface TokenDrift {
  readonly model: string
  readonly laterTurns: number
  readonly driftedTurns: number
  readonly session: string
}

export class GatewayTelemetry implements Disposable {
  readonly #listeners: GatewayListeners
  readonly #subscriptions = new DisposableStack()
  readonly #turns = new Map<string, { later: number; drifted: number }>()

  constructor(listeners: GatewayListeners) {
    this.#listeners = listeners
    this.#subscriptions.use(gatewayEvents.subscribe((event) => this.#isOurs(event) && this.#onEvent(event)))
    this.#subscriptions.use(gatewayRefusals.subscribe((refusal) => this.#isOurs(refusal) && this.#onRefusal(refusal)))
  }

  [Symbol.dispose](): void {
    this.#subscriptions.dispose()
  }

  /** The channels are those of the process. */
  #isOurs({ folder }: GatewayEvent | GatewayRefusal): boolean {
    return folder === this.#listeners.folder
  }

  #onEvent(event: GatewayEvent): void {
    const { registry, onAlarm, onFault } = this.#listeners
    switch (event.kind) {
      case 'session-start':
        registry.series('gatewaySessionsStarted').add()
        return
      case 'session-end':
        registry.series('gatewaySessionsEnded', event.why).add()
        for (const alarm of event.alarms) registry.series('gatewayAlarms', alarm).add()
        if (event.alarms.length > 0) onAlarm?.(event.session, event.alarms)
        return
      case 'session-unreadable':
        onFault?.(event.error)
        return
      case 'fleet-alarm':
        registry.series('gatewayFleetAlarms').add()
        this.#listeners.onFleetAlarm?.(event.message)
        return
      case 'interaction-end':
        this.#onInteraction(event)
    }
  }

  #onInteraction(event: InteractionEndEvent): void {
    const { registry, onRequest, onFault } = this.#listeners
    const { api, model, status, ms, session, outcome, stream, countsOnly, reply, error } = event
    if (error?.code === 'internal') onFault?.(error)
    const complete = reply?.status === 'complete' ? reply : undefined
    const sampledAt = stream ? complete?.firstTokenMs : undefined
    const firstTokenMs = complete && sampledAt !== undefined ? complete.waitMs + sampledAt : undefined
    registry.series('gatewayRequests', api, model ?? '', String(status), outcome).add()
    // How long a count took says nothing about replies, and it makes none.
    if (!countsOnly) {
      registry.series('gatewaySeconds', api).observe(ms / 1000)
      if (firstTokenMs !== undefined) registry.series('gatewayFirstTokenSeconds', api).observe(firstTokenMs / 1000)
      if (session !== undefined) registry.series('gatewaySamples', outcome).add()
    }
    this.#onTurn(event)
    onRequest?.({
      requestId: event.requestId,
      session,
      tenant: event.tenant,
      model,
      api,
      status,
      outcome,
      inputTokens: complete?.usage.input,
      outputTokens: complete?.usage.output,
      ms: Math.round(ms),
      firstTokenMs: firstTokenMs === undefined ? undefined : Math.round(firstTokenMs),
      backend: reply?.backend,
      tries: reply?.tries,
      error: error && loggedError(error),
    })
  }

  #onTurn({ turn, model = '', session = '' }: InteractionEndEvent): void {
    if (!turn) return
    this.#listeners.registry.series('gatewayLaterTurns', model, turn).add()
    const turns = this.#turns.get(model) ?? { later: 0, drifted: 0 }
    this.#turns.set(model, turns)
    turns.later += 1
    if (turn === 'exact') return
    turns.drifted += 1
    // Seldom enough for a log, however many turns drift.
    if (!Number.isInteger(Math.log10(turns.drifted))) return
    this.#listeners.onDrift?.({ model, laterTurns: turns.later, driftedTurns: turns.drifted, session })
  }

  #onRefusal({ api, requestId, status, ms, error }: GatewayRefusal): void {
    const { registry, onRequest, onFault } = this.#listeners
    if (error.code === 'internal') onFault?.(error)
    const outcome = error.code === 'cancelled' ? 'abandoned' : 'refused'
    registry.series('gatewayRequests', api, '', String(status), outcome).add()
    registry.series('gatewaySeconds', api).observe(ms / 1000)
    const reported = { code: error.code, message: error.rawMessage }
    onRequest?.({ api, requestId, status, outcome, ms: Math.round(ms), error: reported })
  }
}

/** With the failure behind it, such as that of the backend that a request waited for in vain. */
function loggedError({ code, rawMessage: message, cause }: MillraceError): LoggedRequest['error'] {
  if (!(cause instanceof MillraceError)) return { code, message }
  return { code, message, cause: { code: cause.code, message: cause.rawMessage } }
}

/** A request that the HTTP server itself refused: no key, a bad body, or (`cancelled`) a client that hung up. */
interface GatewayRefusal {
  readonly folder: string
  readonly api: ClientApi
  readonly requestId: string
  readonly status: number
  readonly ms: number
  readonly error: MillraceError
}

export const gatewayRefusals = new EventChannel<GatewayRefusal>('millrace:gateway-refusal')
