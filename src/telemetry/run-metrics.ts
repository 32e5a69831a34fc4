import { modelCalls, type ModelCallEvent, type ModelReply } from '../inference/index.ts'
import { rolloutEvents, type RolloutEndEvent } from '../rollout/index.ts'
import { toolCalls, toolServerEvents, type ServerEvent, type ToolCallEvent } from '../tools/index.ts'
import { otherName } from './_label-cap.ts'
import type { MetricsRegistry } from './metrics-registry.ts'
import type { Series } from './_series.ts'

/** The series of one model, looked up once. */
interface ModelSeries {
  readonly complete: Series
  readonly tries: Series
  readonly input: Series
  readonly cachedInput: Series
  readonly output: Series
  readonly reasoning: Series
  readonly seconds: Series
  readonly waitSeconds: Series
  readonly firstTokenSeconds: Series
}

interface BackendSeries {
  readonly complete: Series
  readonly seconds: Series
}

interface ToolSeries {
  readonly ok: Series
  readonly seconds: Series
}

/**
 * How many models, backends and tools have their series kept at hand. Further ones are looked up for each call; most of them are
 * `other`.
 */
const maxKept = 256

/** Counts what happens in the rollouts of this thread. */
export class RunMetrics implements Disposable {
  readonly #registry: MetricsRegistry
  readonly #models = new Map<string, ModelSeries>()
  readonly #backends = new Map<string, BackendSeries>()
  readonly #tools = new Map<string, ToolSeries>()
  readonly #subscriptions = new DisposableStack()

  constructor(registry: MetricsRegistry) {
    this.#registry = registry
    this.#subscriptions.use(modelCalls.subscribe((event) => this.#onModelCall(event)))
    this.#subscriptions.use(toolCalls.subscribe((event) => this.#onToolCall(event)))
    this.#subscriptions.use(toolServerEvents.subscribe((event) => this.#onToolServer(event)))
    this.#subscriptions.use(rolloutEvents.subscribe((event) => event.kind === 'end' && this.#onRolloutEnd(event)))
  }

  [Symbol.dispose](): void {
    this.#subscriptions.dispose()
  }

  #onModelCall(event: ModelCallEvent): void {
    if (event.kind === 'end') this.#onReply(event.reply)
    if (event.kind === 'try-failed') this.#registry.series('modelFailures', event.model, event.error.code).add()
  }

  #onReply(reply: ModelReply): void {
    const series = this.#modelSeries(reply.model)
    series.tries.add(reply.tries)
    if (reply.status !== 'complete') {
      this.#registry.series('modelCalls', reply.model, reply.status).add()
      this.#registry.series('backendCalls', reply.backend, reply.status).add()
      return
    }
    const { usage, ms, waitMs, firstTokenMs } = reply
    series.complete.add()
    series.input.add(usage.input)
    series.cachedInput.add(usage.cachedInput)
    series.output.add(usage.output)
    series.reasoning.add(usage.reasoning)
    series.seconds.observe(ms / 1000)
    series.waitSeconds.observe(waitMs / 1000)
    if (firstTokenMs !== undefined) series.firstTokenSeconds.observe(firstTokenMs / 1000)
    const backend = this.#backendSeries(reply.backend)
    backend.complete.add()
    backend.seconds.observe(ms / 1000)
  }

  #onToolCall({ tool, status, ms }: ToolCallEvent): void {
    // A name that no tool has was made up by the model and may be anything.
    const series = this.#toolSeries(status === 'unknown_tool' ? otherName : tool)
    if (status === 'ok') series.ok.add()
    else this.#registry.series('toolCalls', status === 'unknown_tool' ? otherName : tool, status).add()
    series.seconds.observe(ms / 1000)
  }

  #onToolServer(event: ServerEvent): void {
    const result = 'ok' in event && !event.ok ? 'failed' : 'ok'
    this.#registry.series('toolServerEvents', event.server, event.name.replace('mcp.', ''), result).add()
  }

  #onRolloutEnd({ record, isChild }: RolloutEndEvent): void {
    const { environment, outcome, timing } = record
    this.#registry.series('attempts', environment, isChild ? 'child' : 'rollout', outcome).add()
    if (isChild) return
    this.#registry.series('attemptSeconds', environment).observe(timing.wallMs / 1000)
    if (record.reward !== null) this.#registry.series('rewardSeconds', environment).observe(timing.rewardMs / 1000)
  }

  #modelSeries(model: string): ModelSeries {
    let series = this.#models.get(model)
    if (series) return series
    const registry = this.#registry
    series = {
      complete: registry.series('modelCalls', model, 'complete'),
      tries: registry.series('modelTries', model),
      input: registry.series('modelTokens', model, 'input'),
      cachedInput: registry.series('modelTokens', model, 'cached_input'),
      output: registry.series('modelTokens', model, 'output'),
      reasoning: registry.series('modelTokens', model, 'reasoning'),
      seconds: registry.series('modelSeconds', model),
      waitSeconds: registry.series('modelWaitSeconds', model),
      firstTokenSeconds: registry.series('modelFirstTokenSeconds', model),
    }
    if (this.#models.size < maxKept) this.#models.set(model, series)
    return series
  }

  #backendSeries(backend: string): BackendSeries {
    let series = this.#backends.get(backend)
    if (series) return series
    series = {
      complete: this.#registry.series('backendCalls', backend, 'complete'),
      seconds: this.#registry.series('backendSeconds', backend),
    }
    if (this.#backends.size < maxKept) this.#backends.set(backend, series)
    return series
  }

  #toolSeries(tool: string): ToolSeries {
    let series = this.#tools.get(tool)
    if (series) return series
    series = { ok: this.#registry.series('toolCalls', tool, 'ok'), seconds: this.#registry.series('toolSeconds', tool) }
    if (this.#tools.size < maxKept) this.#tools.set(tool, series)
    return series
  }
}
