import type { ModelStatus } from '../inference/index.ts'
import type { LoopLagWindow } from '../kit/index.ts'
import type { WorkerStatus } from '../rollout/index.ts'
import type { StoreStatus } from '../store/index.ts'
import type { ToolServerStatus } from '../tools/index.ts'
import { MetricsRegistry } from './metrics-registry.ts'

/** A pool of threads that takes large work off a loop. Pools of one name, in several workers, count as one. */
export interface PoolReading {
  readonly name: string
  readonly threads: number
  readonly queued: number
  readonly waitP99Ms: number
  readonly waitMaxMs?: number
}

/** How a gateway and its door are doing. */
export interface GatewayReading {
  readonly openSessions: number
  readonly awaitedBackends: number
  readonly connections: number
  readonly maxConnections: number
  readonly turnedAway: number
  readonly dropped: number
  readonly bodyBytes: number
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
  readonly pools?: () => readonly PoolReading[]
  readonly gateway?: () => GatewayReading
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
export function stateReadings(sources: MetricsSources): MetricsRegistry {
  const readings = new MetricsRegistry()
  const rollouts = sources.rollouts?.()
  if (rollouts) {
    readings.series('rolloutsRunning').add(rollouts.running)
    readings.series('rolloutsWaiting').add(rollouts.waiting)
  }
  for (const { name, limit, inFlight, waiting, parked } of sources.models?.() ?? []) {
    readings.series('modelPermits', name).add(limit)
    readings.series('modelInFlight', name).add(inFlight)
    readings.series('modelWaiting', name).add(waiting)
    readings.series('modelParked', name).add(parked)
  }
  for (const { server, waiting } of sources.servers?.() ?? []) {
    readings.series('toolServerWaiting', server).add(waiting)
  }
  for (const [loop, lag] of Object.entries(sources.loops?.() ?? {})) readLag(readings, loop, lag)
  for (const worker of sources.workers?.() ?? []) readWorker(readings, worker)
  const journal = sources.journal?.()
  if (journal) readJournal(readings, journal)
  for (const { name, threads, queued, waitP99Ms, waitMaxMs } of sources.pools?.() ?? []) {
    readings.series('poolThreads', name).add(threads)
    readings.series('poolQueued', name).add(queued)
    readings.series('poolWaitP99', name).raise(waitP99Ms / 1000)
    if (waitMaxMs !== undefined) readings.series('poolWaitMax', name).raise(waitMaxMs / 1000)
  }
  const serve = sources.serve?.()
  if (serve) {
    readings.series('serveRequests').add(serve.requests)
    readings.series('serveRollouts').add(serve.rollouts)
    readings.series('serveReplyP99').add(serve.replyP99Ms / 1000)
  }
  const gateway = sources.gateway?.()
  if (gateway) {
    readings.series('gatewaySessionsOpen').add(gateway.openSessions)
    readings.series('gatewayBackendsAwaited').add(gateway.awaitedBackends)
    readings.series('gatewayConnections').add(gateway.connections)
    readings.series('gatewayConnectionsMax').add(gateway.maxConnections)
    readings.series('gatewayTurnedAway', 'told').add(gateway.turnedAway)
    readings.series('gatewayTurnedAway', 'dropped').add(gateway.dropped)
    readings.series('gatewayBodyBytes').add(gateway.bodyBytes)
  }
  const { user, system } = process.cpuUsage()
  readings.series('processCpu').add((user + system) / 1e6)
  readings.series('processMemory').add(process.memoryUsage.rss())
  return readings
}

function readWorker(readings: MetricsRegistry, { id, state, running, lag, memoryBytes, restarts }: WorkerStatus): void {
  const worker = String(id)
  for (const each of workerStates) readings.series('workerState', worker, each).add(each === state ? 1 : 0)
  readings.series('workerRunning', worker).add(running)
  readings.series('workerMemory', worker).add(memoryBytes)
  readings.series('workerRestarts', worker).add(restarts)
  readLag(readings, `worker-${worker}`, lag)
}

function readJournal(readings: MetricsRegistry, journal: { pressure: number } & Partial<StoreStatus>): void {
  const { pressure, commits, entries, commitMs, slowestCommitMs } = journal
  readings.series('journalPressure').add(pressure)
  if (commits !== undefined) readings.series('journalCommits').add(commits)
  if (entries !== undefined) readings.series('journalEntries').add(entries)
  if (commitMs !== undefined) readings.series('journalCommitSeconds').add(commitMs / 1000)
  if (slowestCommitMs !== undefined) readings.series('journalSlowest').add(slowestCommitMs / 1000)
}

function readLag(readings: MetricsRegistry, loop: string, lag: LoopLagWindow): void {
  readings.series('lagMax', loop).raise(lag.maxMs / 1000)
  readings.series('lagP99', loop).raise(lag.p99Ms / 1000)
  readings.series('lagMean', loop).raise(lag.meanMs / 1000)
  readings.series('loopUtilization', loop).raise(lag.utilization)
}
