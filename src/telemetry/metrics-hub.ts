import type { BackendStatus, ModelStatus } from '../inference/index.ts'
import type { LoopLagWindow } from '../kit/index.ts'
import type { AttemptResult, WorkerStatus } from '../rollout/index.ts'
import type { RolloutRecord } from '../schema/index.ts'
import type { StoreStatus } from '../store/index.ts'
import type { ToolServerStatus } from '../tools/index.ts'
import { type MetricKey, metricFamilies, type MetricFamily } from './metric-families.ts'
import { MetricsRegistry, type Series } from './metrics-registry.ts'

/** What `/metrics` answers. */
export interface Metrics {
  readonly contentType: string
  text(): Promise<string>
}

const contentType = 'text/plain; version=0.0.4; charset=utf-8'

/**
 * The metrics of a whole process: the counts of its own thread, the counts that workers sent, and the state at the moment
 * somebody asks. Counts of a worker that was replaced stay.
 */
export class MetricsHub implements Metrics {
  readonly contentType = contentType
  readonly #registry: MetricsRegistry
  readonly #sources: MetricsSources

  constructor(registry: MetricsRegistry, sources: MetricsSources) {
    this.#registry = registry
    this.#sources = sources
  }

  /** Counts a rollout with its final, durable result. */
  rolloutSettled({ environment, outcome }: Pick<RolloutRecord, 'environment' | 'outcome'>): void {
    this.#registry.series('rollouts', environment, outcome).add()
  }

  /** Counts an attempt that went down with its worker. */
  rolloutLost({ disposition }: Pick<Extract<AttemptResult, { kind: 'lost' }>, 'disposition'>): void {
    this.#registry.series('rolloutsLost', disposition).add()
  }

  async text(): Promise<string> {
    const readings = [this.#registry, stateReadings(this.#sources), processReadings()]
    return families((key) => readings.flatMap((registry) => Array.from(registry.all(key))))
  }

  /** Its own counts and the state now, without what is the process's. */
  readings(): readonly MetricsRegistry[] {
    return [this.#registry, stateReadings(this.#sources)]
  }
}

/** The metrics of several runs in one process. What a run has of its own carries its name, as the label `run`. */
export class RunsMetrics implements Metrics {
  readonly contentType = contentType
  readonly #counts: MetricsRegistry
  readonly #runs: ReadonlyMap<string, MetricsHub>

  /** `counts` are those of all runs: a call of a model is counted where it is made, not for whom. */
  constructor(counts: MetricsRegistry, runs: ReadonlyMap<string, MetricsHub>) {
    this.#counts = counts
    this.#runs = runs
  }

  async text(): Promise<string> {
    const shared = [this.#counts, processReadings()]
    const own = Array.from(this.#runs, ([run, hub]) => ({ run, readings: hub.readings() }))
    return families((key) => [
      ...shared.flatMap((registry) => Array.from(registry.all(key))),
      ...own.flatMap(({ run, readings }) =>
        readings.flatMap((registry) =>
          Array.from(registry.all(key), ({ labels, values }) => ({ labels, values, run })),
        ),
      ),
    ])
  }
}

type Shown = Pick<Series, 'labels' | 'values'> & { readonly run?: string }

function families(seriesOf: (key: MetricKey) => Iterable<Shown>): string {
  const keys = Object.keys(metricFamilies) as MetricKey[]
  return keys.map((key) => exposition(metricFamilies[key], seriesOf(key))).join('')
}

/** One family in Prometheus' text format; nothing if it has no series. */
function exposition(family: MetricFamily, all: Iterable<Shown>): string {
  const { name, kind, help, labels, buckets } = family
  let text = ''
  for (const series of all) {
    const { run } = series
    const named = labels.map((label, index) => `${label}="${escaped(series.labels[index] ?? '')}"`)
    const pairs = (run === undefined ? named : [`run="${escaped(run)}"`, ...named]).join(',')
    text += buckets ? histogramLines(name, pairs, buckets, series.values) : line(name, pairs, series.values[0])
  }
  return text && `# HELP ${name} ${help}\n# TYPE ${name} ${kind}\n${text}`
}

function histogramLines(name: string, pairs: string, buckets: readonly number[], values: Float64Array): string {
  const head = pairs && `${pairs},`
  let text = ''
  let count = 0
  for (const [index, bound] of [...buckets, '+Inf'].entries()) {
    count += values[index] ?? 0
    text += line(`${name}_bucket`, `${head}le="${bound}"`, count)
  }
  return text + line(`${name}_sum`, pairs, values[buckets.length + 1]) + line(`${name}_count`, pairs, count)
}

function line(name: string, pairs: string, value = 0): string {
  return `${name}${pairs && `{${pairs}}`} ${value}\n`
}

function escaped(value: string): string {
  return value.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n')
}

/** Where the state of a process is read when somebody asks for its metrics. A source that is not given is not reported. */
export interface MetricsSources {
  readonly rollouts?: () => { readonly running: number; readonly waiting: number }
  readonly models?: () => readonly ModelStatus[]
  readonly workers?: () => readonly WorkerStatus[]
  readonly servers?: () => readonly Pick<ToolServerStatus, 'server' | 'waiting'>[]
  /** Loops by name, beside those of the workers: `front`, `store`. */
  readonly loops?: () => Readonly<Record<string, LoopLagWindow>>
  readonly journal?: () => { readonly pressure: number } & Partial<StoreStatus>
  /** Pools of one name, in several workers, count as one. */
  readonly pools?: () => readonly {
    readonly name: string
    readonly threads: number
    readonly queued: number
    readonly waitP99Ms: number
    readonly waitMaxMs?: number
  }[]
  readonly gateway?: () => {
    readonly openSessions: number
    readonly awaitedBackends: number
    readonly backends: readonly { readonly id: string; readonly state: string; readonly version: string | null }[]
    readonly connections: number
    readonly maxConnections: number
    readonly turnedAway: number
    readonly dropped: number
    readonly bodyBytes: number
  }
  readonly serve?: () => { readonly requests: number; readonly rollouts: number; readonly replyP99Ms: number }
}

const workerStates = Object.keys({
  starting: true,
  ready: true,
  silent: true,
  draining: true,
  gone: true,
} satisfies Record<WorkerStatus['state'], true>)

/** The state now, as a registry for one answer. Counts with the same labels add up; of lags and waits the worst is kept. */
function stateReadings(sources: MetricsSources): MetricsRegistry {
  const readings = new MetricsRegistry()
  const { running, waiting } = sources.rollouts?.() ?? {}
  add(readings, [], { rolloutsRunning: running, rolloutsWaiting: waiting })
  for (const model of sources.models?.() ?? []) {
    const { name, limit: modelPermits, inFlight: modelInFlight, parked: modelParked } = model
    add(readings, [name], { modelPermits, modelInFlight, modelWaiting: model.waiting, modelParked })
    for (const backend of model.backends ?? []) addBackend(readings, name, backend)
  }
  for (const { server, waiting: toolServerWaiting } of sources.servers?.() ?? []) {
    add(readings, [server], { toolServerWaiting })
  }
  for (const [loop, lag] of Object.entries(sources.loops?.() ?? {})) raiseLag(readings, loop, lag)
  for (const { id, state, running: workerRunning, lag, memoryBytes, restarts } of sources.workers?.() ?? []) {
    const worker = String(id)
    for (const each of workerStates) add(readings, [worker, each], { workerState: each === state ? 1 : 0 })
    add(readings, [worker], { workerRunning, workerMemory: memoryBytes, workerRestarts: restarts })
    raiseLag(readings, `worker-${worker}`, lag)
  }
  const { pressure: journalPressure, commits, entries, commitMs, slowestCommitMs } = sources.journal?.() ?? {}
  add(readings, [], { journalPressure, journalCommits: commits, journalEntries: entries })
  add(readings, [], { journalCommitSeconds: seconds(commitMs), journalSlowest: seconds(slowestCommitMs) })
  for (const { name, threads, queued, waitP99Ms, waitMaxMs } of sources.pools?.() ?? []) {
    add(readings, [name], { poolThreads: threads, poolQueued: queued })
    raise(readings, [name], { poolWaitP99: seconds(waitP99Ms), poolWaitMax: seconds(waitMaxMs) })
  }
  const { requests: serveRequests, rollouts: serveRollouts, replyP99Ms } = sources.serve?.() ?? {}
  add(readings, [], { serveRequests, serveRollouts, serveReplyP99: seconds(replyP99Ms) })
  const gateway = sources.gateway?.()
  add(readings, ['told'], { gatewayTurnedAway: gateway?.turnedAway })
  add(readings, ['dropped'], { gatewayTurnedAway: gateway?.dropped })
  for (const { id, version } of gateway?.backends ?? []) {
    if (version !== null) add(readings, [id, version], { gatewayBackendVersion: 1 })
  }
  add(readings, [], {
    gatewaySessionsOpen: gateway?.openSessions,
    gatewayBackendsAwaited: gateway?.awaitedBackends,
    gatewayBackendsPaused: gateway?.backends.filter(({ state }) => state === 'pausing' || state === 'paused').length,
    gatewayConnections: gateway?.connections,
    gatewayConnectionsMax: gateway?.maxConnections,
    gatewayBodyBytes: gateway?.bodyBytes,
  })
  return readings
}

function addBackend(readings: MetricsRegistry, model: string, backend: BackendStatus): void {
  const { name, inFlight, contextTokens, sessions, affinityBreaks, weight, kvUsage, queued } = backend
  add(readings, [model, name], {
    backendInFlight: inFlight,
    backendContextTokens: contextTokens,
    backendSessions: sessions,
    backendAffinityBreaks: affinityBreaks,
    backendQueued: queued,
  })
  raise(readings, [model, name], { backendWeight: weight, backendKvUsage: kvUsage })
}

function processReadings(): MetricsRegistry {
  const readings = new MetricsRegistry()
  const { user, system } = process.cpuUsage()
  add(readings, [], { processCpu: (user + system) / 1e6, processMemory: process.memoryUsage.rss() })
  return readings
}

/** Figures by family; those that are undefined are not reported. */
type Figures = Readonly<Partial<Record<MetricKey, number | undefined>>>

function add(readings: MetricsRegistry, labels: readonly string[], figures: Figures): void {
  for (const [family, value] of Object.entries(figures)) {
    if (value !== undefined) readings.series(family as MetricKey, ...labels).add(value)
  }
}

function raise(readings: MetricsRegistry, labels: readonly string[], figures: Figures): void {
  for (const [family, value] of Object.entries(figures)) {
    if (value !== undefined) readings.series(family as MetricKey, ...labels).raise(value)
  }
}

function raiseLag(readings: MetricsRegistry, loop: string, { maxMs, p99Ms, meanMs, utilization }: LoopLagWindow): void {
  const lag = { lagMax: seconds(maxMs), lagP99: seconds(p99Ms), lagMean: seconds(meanMs) }
  raise(readings, [loop], { ...lag, loopUtilization: utilization })
}

function seconds(ms: number | undefined): number | undefined {
  return ms === undefined ? undefined : ms / 1000
}
