import { type LaterTurn, laterTurns, type ModelCallEvent, modelCalls, type ModelReply } from '../inference/index.ts'
import { type RolloutEndEvent, rolloutEvents } from '../rollout/index.ts'
import { type ServerEvent, type ToolCallEvent, toolCalls, toolServerEvents } from '../tools/index.ts'
import { type MetricKey, metricFamilies, type MetricFamily } from './metric-families.ts'

/** The growth of one series. A plain value, to be sent to another thread or process. */
interface SeriesDelta {
  readonly family: MetricKey
  readonly labels: readonly string[]
  readonly values: readonly number[]
}

/** The growth of a worker's counters and histograms since it last sent one: only series that changed. */
export type MetricsDelta = readonly SeriesDelta[]

/** Counters and histograms of one thread. */
export class MetricsRegistry {
  readonly #families = new Map<MetricKey, Map<string, Series>>()
  readonly #cap = new LabelCap()

  series(family: MetricKey, ...values: readonly string[]): Series {
    const { labels, buckets }: MetricFamily = metricFamilies[family]
    const admitted = labels.map((label, index) => this.#cap.admit(label, values[index] ?? ''))
    const key = admitted.join('\n')
    let all = this.#families.get(family)
    if (!all) this.#families.set(family, (all = new Map()))
    let series = all.get(key)
    if (!series) all.set(key, (series = new Series(admitted, buckets)))
    return series
  }

  all(family: MetricKey): Iterable<Series> {
    return this.#families.get(family)?.values() ?? []
  }

  /** The growth since the last call; undefined if nothing was counted. */
  takeDelta(): MetricsDelta | undefined {
    const delta: SeriesDelta[] = []
    for (const [family, all] of this.#families) {
      for (const series of all.values()) {
        const values = series.take()
        if (values) delta.push({ family, labels: series.labels, values })
      }
    }
    return delta.length > 0 ? delta : undefined
  }

  merge(delta: MetricsDelta): void {
    for (const { family, labels, values } of delta) this.series(family, ...labels).merge(values)
  }
}

/** The figures of one set of labels: one for a counter; the buckets, `+Inf` and the sum for a histogram. */
export class Series {
  readonly labels: readonly string[]
  readonly values: Float64Array
  readonly #bounds: readonly number[]
  #taken: Float64Array | undefined

  constructor(labels: readonly string[], bounds: readonly number[] | undefined) {
    this.labels = labels
    this.#bounds = bounds ?? []
    this.values = new Float64Array(bounds ? bounds.length + 2 : 1)
  }

  /** Increases a counter. */
  add(amount = 1): void {
    this.values[0] = (this.values[0] ?? 0) + amount
  }

  /** Keeps the larger of the present value and this one. */
  raise(value: number): void {
    this.values[0] = Math.max(this.values[0] ?? 0, value)
  }

  /** Puts a value into its bucket. */
  observe(value: number): void {
    const bounds = this.#bounds
    let bucket = 0
    while (bucket < bounds.length && value > (bounds[bucket] ?? Infinity)) bucket += 1
    this.#increase(bucket, 1)
    this.#increase(bounds.length + 1, value)
  }

  merge(more: readonly number[]): void {
    for (let index = 0; index < this.values.length; index += 1) this.#increase(index, more[index] ?? 0)
  }

  /** What was added since the last call; undefined if nothing was. */
  take(): number[] | undefined {
    const { values } = this
    const taken = (this.#taken ??= new Float64Array(values.length))
    if (values.every((value, index) => value === taken[index])) return undefined
    const more = Array.from(values, (value, index) => value - (taken[index] ?? 0))
    taken.set(values)
    return more
  }

  #increase(index: number, amount: number): void {
    this.values[index] = (this.values[index] ?? 0) + amount
  }
}

/** How many names a label may have; later ones count as `other`. Together these limits bound the number of series. */
const maxNames: Readonly<Record<string, number>> = {
  tool: 64,
  environment: 32,
  model: 32,
  backend: 64,
  pool: 16,
  worker: 256,
}

const maxLength = 100

/** Stands for all names that have no series of their own. */
const otherName = 'other'

/**
 * Keeps the number of series bounded whatever names users and models come up with. Labels that are not listed take their values
 * from closed sets.
 */
class LabelCap {
  readonly #names = new Map<string, Set<string>>()

  admit(label: string, value: string): string {
    const most = maxNames[label]
    if (most === undefined) return value
    const name = value.length > maxLength ? value.slice(0, maxLength) : value
    let names = this.#names.get(label)
    if (!names) this.#names.set(label, (names = new Set()))
    if (names.has(name)) return name
    if (names.size >= most) return otherName
    names.add(name)
    return name
  }
}

/** The counts of a process that several runs share. Each call and attempt is counted once, whichever run it belongs to. */
export class ProcessCounts implements Disposable {
  readonly registry = new MetricsRegistry()
  readonly #listener: RunMetrics

  constructor() {
    this.#listener = new RunMetrics(this.registry)
  }

  [Symbol.dispose](): void {
    this.#listener[Symbol.dispose]()
  }
}

/** Counts what happens in the rollouts of this thread. */
export class RunMetrics implements Disposable {
  readonly #registry: MetricsRegistry
  readonly #subscriptions = new DisposableStack()

  constructor(registry: MetricsRegistry) {
    this.#registry = registry
    this.#subscriptions.use(modelCalls.subscribe((event) => this.#onModelCall(event)))
    this.#subscriptions.use(laterTurns.subscribe((turn) => this.#onLaterTurn(turn)))
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
    const { model, backend, status, tries, ms } = reply
    const registry = this.#registry
    registry.series('modelTries', model).add(tries)
    registry.series('modelCalls', model, status).add()
    registry.series('backendCalls', backend, status).add()
    if (reply.status !== 'complete') return
    const { usage, waitMs, firstTokenMs } = reply
    registry.series('modelTokens', model, 'input').add(usage.input)
    registry.series('modelTokens', model, 'cached_input').add(usage.cachedInput)
    registry.series('modelTokens', model, 'output').add(usage.output)
    registry.series('modelTokens', model, 'reasoning').add(usage.reasoning)
    registry.series('modelSeconds', model).observe(ms / 1000)
    registry.series('modelWaitSeconds', model).observe(waitMs / 1000)
    const firstToken = registry.series('modelFirstTokenSeconds', model)
    if (firstTokenMs !== undefined) firstToken.observe(firstTokenMs / 1000)
    registry.series('backendSeconds', backend).observe(ms / 1000)
  }

  #onLaterTurn({ model, driftedTokens = 0 }: LaterTurn): void {
    this.#registry.series('laterTurns', model, driftedTokens === 0 ? 'exact' : 'drifted').add()
    this.#registry.series('driftedTokens', model).add(driftedTokens)
  }

  #onToolCall({ tool, status, ms }: ToolCallEvent): void {
    // A name that no tool has was made up by the model and may be anything.
    const name = status === 'unknown_tool' ? otherName : tool
    this.#registry.series('toolCalls', name, status).add()
    this.#registry.series('toolSeconds', name).observe(ms / 1000)
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
}
