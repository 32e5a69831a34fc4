import { MillraceError } from '../../errors/index.ts'
import { gatewayEvents, type GatewayEvent, type InteractionEndEvent } from '../../gateway/index.ts'
import type { GatewayMetrics, LoggedRequest } from '../../telemetry/index.ts'
import { gatewayRefusals, type GatewayRefusal } from './gateway-refusals.ts'

export interface GatewayListeners {
  /** Of the run of the gateway that is listened to. */
  readonly folder: string
  readonly metrics: GatewayMetrics
  /** Every request, when it has ended. */
  readonly onRequest?: ((request: LoggedRequest) => void) | undefined
  /** What is a fault of the gateway's own. */
  readonly onFault?: ((error: MillraceError) => void) | undefined
  /** A session whose record is of no use. */
  readonly onAlarm?: ((session: string, alarms: readonly string[]) => void) | undefined
  /** A model's 1st, 10th, 100th… turn whose prompt does not begin with the tokens of the turn before it. */
  readonly onDrift?: ((drift: TokenDrift) => void) | undefined
}

/** How many later turns of a model were compared with the turn before them, since the gateway started. */
export interface TokenDrift {
  readonly model: string
  readonly laterTurns: number
  readonly driftedTurns: number
  /** The session that had the latest of them. */
  readonly session: string
}

/** Listens to a gateway and its door, until it is disposed of. */
export class GatewayTelemetry implements Disposable {
  readonly #listeners: GatewayListeners
  readonly #subscriptions = new DisposableStack()
  /** By model: there are no more than are offered. */
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
    const { metrics, onAlarm, onFault } = this.#listeners
    switch (event.kind) {
      case 'session-start':
        metrics.sessionStarted()
        return
      case 'session-end':
        metrics.sessionEnded(event)
        if (event.alarms.length > 0) onAlarm?.(event.session, event.alarms)
        return
      case 'session-unreadable':
        onFault?.(event.error)
        return
      case 'interaction-end':
        this.#onInteraction(event)
    }
  }

  #onInteraction(event: InteractionEndEvent): void {
    const { metrics, onRequest, onFault } = this.#listeners
    const { api, model, status, ms, session, outcome, stream, countsOnly, reply, error, turn } = event
    if (error?.code === 'internal') onFault?.(error)
    const complete = reply?.status === 'complete' ? reply : undefined
    const sampledAt = stream ? complete?.firstTokenMs : undefined
    const firstTokenMs = complete && sampledAt !== undefined ? complete.waitMs + sampledAt : undefined
    // How long a count took says nothing about replies, and it makes none.
    const said = countsOnly ? { isInSession: false } : { ms, firstTokenMs, isInSession: session !== undefined }
    metrics.requestEnded({ api, model, status, outcome, turn, ...said })
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
    const { metrics, onRequest, onFault } = this.#listeners
    if (error.code === 'internal') onFault?.(error)
    const outcome = error.code === 'cancelled' ? 'abandoned' : 'refused'
    metrics.requestEnded({ api, status, ms, outcome, isInSession: false })
    const said = { code: error.code, message: error.rawMessage }
    onRequest?.({ ...unknown, api, requestId, status, outcome, ms: Math.round(ms), error: said })
  }
}

/** With the failure behind it, such as that of the backend that a request waited for in vain. */
function loggedError({ code, rawMessage: message, cause }: MillraceError): LoggedRequest['error'] {
  if (!(cause instanceof MillraceError)) return { code, message }
  return { code, message, cause: { code: cause.code, message: cause.rawMessage } }
}

const unknown = {
  session: undefined,
  tenant: undefined,
  model: undefined,
  inputTokens: undefined,
  outputTokens: undefined,
  firstTokenMs: undefined,
  backend: undefined,
  tries: undefined,
} as const
