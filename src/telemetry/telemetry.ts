import { Resource, type Variables } from '../kit/index.ts'
import { MetricsHub, type MetricsSources } from './metrics-hub.ts'
import { type MetricsDelta, MetricsRegistry, RunMetrics } from './metrics-registry.ts'
import { OtlpExporter, otlpSettings } from './otlp-exporter.ts'
import { SpanRecorder } from './span-recorder.ts'

export interface TelemetryOptions {
  /** Where OpenTelemetry's variables are looked up. */
  readonly env: Variables
  /** The name of the run; part of every trace's id. */
  readonly run: string
  /** The name of the worker that this thread or process is; undefined in the supervising one. */
  readonly worker?: string
  /** Whether anybody will ask for metrics. If spans are off as well, nothing listens and nothing is paid. */
  readonly metrics: boolean
}

/** Starts listening to the rollouts of this thread. One per thread: a second one would count the same things again. */
export function startTelemetry(options: TelemetryOptions): Telemetry {
  return new Telemetry(options)
}

/** What one thread reports about its rollouts: counts for `/metrics`, spans for a collector. */
export class Telemetry extends Resource {
  readonly notices: readonly string[]
  /** The counters and histograms of this process. */
  readonly registry = new MetricsRegistry()
  readonly #listeners = new DisposableStack()
  readonly #exporter: OtlpExporter | undefined

  constructor({ env, run, worker, metrics }: TelemetryOptions) {
    super()
    const { settings, notice } = otlpSettings(env)
    this.notices = notice === undefined ? [] : [notice]
    if (metrics) this.#listeners.use(new RunMetrics(this.registry))
    if (!settings) return
    const instance = `${process.pid}${worker === undefined ? '' : `-${worker}`}`
    const exporter = new OtlpExporter(settings, this.registry, instance)
    this.#exporter = exporter
    this.#listeners.use(new SpanRecorder({ run, worker, onSpan: (json) => exporter.add(json) }))
  }

  get isTracing(): boolean {
    return this.#exporter !== undefined
  }

  /** In a worker: the counts since the last call, to travel with its status. Undefined if there were none. */
  takeDelta(): MetricsDelta | undefined {
    return this.registry.takeDelta()
  }

  /** In the supervising process: adds the counts that a worker sent. */
  merge(delta: MetricsDelta): void {
    this.registry.merge(delta)
  }

  /** In the supervising process: all its metrics, with those of its workers. */
  metrics(sources: MetricsSources): MetricsHub {
    return new MetricsHub(this.registry, sources)
  }

  /** Stops listening and sends the spans that are left, for a few seconds at most. Never fails. */
  protected async onClose(): Promise<void> {
    this.#listeners.dispose()
    await this.#exporter?.close()
  }
}
