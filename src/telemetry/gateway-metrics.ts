import type { MetricsRegistry } from './metrics-registry.ts'
import type { Series } from './_series.ts'

/** The facts about an ended request to a gateway that are counted. */
export interface GatewayRequestFacts {
  readonly api: string
  /** Undefined if the request was refused before its model was known. */
  readonly model?: string | undefined
  readonly status: number
  /** Undefined for a request that did not ask for a reply. */
  readonly ms?: number | undefined
  /** Only for a stream. */
  readonly firstTokenMs?: number | undefined
  /** What became of the request: the status does not tell, as a stream that broke has the same as one that did not. */
  readonly outcome: string
  readonly isInSession: boolean
  /** How the tokens of a later turn follow those before it, where both are known. */
  readonly turn?: string | undefined
}

/** The series of one API, model, status and outcome, looked up once. */
interface RequestSeries {
  readonly count: Series
  readonly seconds: Series
  readonly firstTokenSeconds: Series
}

/** How many series are kept at hand: models are few, and one status is by far the most frequent. */
const maxKept = 1024

/** Counts what happens in a gateway. */
export class GatewayMetrics {
  readonly #registry: MetricsRegistry
  readonly #requests = new Map<string, RequestSeries>()
  readonly #results = new Map<string, Series>()
  readonly #turns = new Map<string, Series>()

  constructor(registry: MetricsRegistry) {
    this.#registry = registry
  }

  requestEnded(facts: GatewayRequestFacts): void {
    const { api, model = '', status, ms, firstTokenMs, outcome, isInSession, turn } = facts
    const series = this.#requestSeries(api, model, String(status), outcome)
    series.count.add()
    if (ms !== undefined) series.seconds.observe(ms / 1000)
    if (firstTokenMs !== undefined) series.firstTokenSeconds.observe(firstTokenMs / 1000)
    if (isInSession) this.#resultSeries(outcome).add()
    if (turn !== undefined) this.#turnSeries(model, turn).add()
  }

  sessionStarted(): void {
    this.#registry.series('gatewaySessionsStarted').add()
  }

  sessionEnded({ why, alarms }: { readonly why: string; readonly alarms: readonly string[] }): void {
    this.#registry.series('gatewaySessionsEnded', why).add()
    for (const alarm of alarms) this.#registry.series('gatewayAlarms', alarm).add()
  }

  #requestSeries(api: string, model: string, status: string, outcome: string): RequestSeries {
    const key = `${api} ${status} ${outcome} ${model}`
    let series = this.#requests.get(key)
    if (series) return series
    series = {
      count: this.#registry.series('gatewayRequests', api, model, status, outcome),
      seconds: this.#registry.series('gatewaySeconds', api),
      firstTokenSeconds: this.#registry.series('gatewayFirstTokenSeconds', api),
    }
    if (this.#requests.size < maxKept) this.#requests.set(key, series)
    return series
  }

  #turnSeries(model: string, tokens: string): Series {
    const key = `${tokens} ${model}`
    let series = this.#turns.get(key)
    if (series) return series
    series = this.#registry.series('gatewayLaterTurns', model, tokens)
    if (this.#turns.size < maxKept) this.#turns.set(key, series)
    return series
  }

  #resultSeries(result: string): Series {
    let series = this.#results.get(result)
    if (!series) this.#results.set(result, (series = this.#registry.series('gatewaySamples', result)))
    return series
  }
}
