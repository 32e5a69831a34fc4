import { hash } from 'node:crypto'
import { z } from 'zod'
import { MillraceError } from '../../errors/index.ts'
import {
  evaluateOptionFields,
  type EvaluateOptions,
  abortRun,
  recordCodeChanges,
  type OpenedRun,
  openExecutor,
  openRun,
  type ResolvedRun,
  resolveRun,
  type RunConfig,
  type RunInfo,
  resumeRun,
} from '../../eval/index.ts'
import type { ModelStatus } from '../../inference/index.ts'
import { LoopLag, type LoopLagWindow, type Variables } from '../../kit/index.ts'
import type { Executor, WorkerStatus } from '../../rollout/index.ts'
import { closedObject, type Outcome, type RolloutRecord } from '../../schema/index.ts'
import { defaultRunsRoot, findRuns, readRunFile, runFolder, type RunStore } from '../../store/index.ts'
import {
  type MetricsDelta,
  type MetricsHub,
  type ProcessCounts,
  startTelemetry,
  type Telemetry,
} from '../../telemetry/index.ts'
import type { ToolServerStatus } from '../../tools/index.ts'
import { CodecPool, type CodecStatus } from '../codec/codec-pool.ts'
import type { Readiness } from '../http/status-routes.ts'

export interface ServiceParts {
  readonly bounds: ServeBounds
  readonly resolved: ResolvedRun
  readonly info: RunInfo
  readonly seed: number
  readonly store: RunStore
  /** Puts down, with the first rollout that starts or group that is scored, that the code has changed since the run began. */
  readonly keepChanges: () => void
  readonly telemetry: Telemetry
  readonly executor: Executor
  readonly backends: ServiceOptions['backends']
  readonly codec: CodecPool
  readonly lag: LoopLag
}

/** `started` closes what was opened, and gives up the run, until somebody takes it over. */
export async function openServiceParts(
  options: ServiceOptions,
  started: AsyncDisposableStack,
  shared: ProcessCounts | undefined,
): Promise<ServiceParts> {
  const bounds = { ...defaultBounds, ...options.bounds }
  const { resolved, opened } = await openServedRun(options)
  started.defer(() => abortRun(opened))
  const { store, name, seed } = opened
  const telemetry = started.use(startTelemetry({ env: resolved.env, run: name, metrics: !shared }))
  const { registry } = shared ?? telemetry
  const counted = { run: name, metrics: true, onMetrics: (delta: MetricsDelta) => registry.merge(delta) }
  const executor = started.use(await openExecutor(store, resolved, options, counted))
  const codec = started.use(await CodecPool.start(store.folder))
  const signal = options.signal ?? new AbortController().signal
  const silent = (options.preflight ?? true) ? await executor.preflight(signal) : []
  const { info: taken, changedCode } = await resumeRun(opened, resolved.config, options.run ?? {})
  const info = { ...taken, notices: [...taken.notices, ...silent] }
  const keepChanges = recordCodeChanges(store, changedCode)
  const lag = started.use(new LoopLag())
  return {
    bounds,
    resolved,
    info,
    seed,
    store,
    keepChanges,
    telemetry,
    executor,
    codec,
    lag,
    backends: options.backends,
  }
}

/** From the last to the first; `end` is how this launch of the run ended. */
export async function closeServiceParts(parts: ServiceParts, end: 'drained' | 'stopped'): Promise<void> {
  const { store, telemetry, executor, codec, lag } = parts
  await using closing = new AsyncDisposableStack()
  closing.use(store)
  closing.defer(async () => {
    if (!store.failure.aborted) await store.finish('unfinished', { end })
  })
  closing.use(telemetry)
  closing.use(executor)
  closing.use(codec)
  closing.use(lag)
}

/** A client may hold a connection for each rollout that runs, and others look at the server meanwhile. */
const clientsPerRollout = 1.1

/** The run a server works on: the newest of the same options that nobody works on, or a new one. Never an evaluation's. */
async function openServedRun(options: ServiceOptions): Promise<{ resolved: ResolvedRun; opened: OpenedRun }> {
  const evaluated = await resolveRun(options, process.env, options.signal)
  // A server's tasks come from its clients, so that the same options make another run than they make for `evaluate`.
  const resolved: ResolvedRun = {
    ...evaluated,
    config: servedConfig(evaluated.config),
    settings: { ...evaluated.settings, clients: Math.ceil(evaluated.config.concurrency * clientsPerRollout) },
    digest: hash('sha256', `serve ${evaluated.digest}`).slice(0, 16),
  }
  requireServedRun(resolved, options)
  await requireNobodyAtWork(resolved, options)
  const { run = {}, signal } = options
  return { resolved, opened: await openRun(resolved, run, signal) }
}

function servedConfig(config: RunConfig): RunConfig & { readonly isServed: true } {
  return { ...config, isServed: true }
}

/** A second server of the same command would have its own run, which the next start would find instead of the first. */
async function requireNobodyAtWork({ digest, env }: ResolvedRun, { run }: ServiceOptions): Promise<void> {
  if (run?.name !== undefined || run?.resume === 'never') return
  const { runs } = await findRuns(rootOf(run, env))
  const busy = runs.find((found) => found.run.configDigest === digest && found.run.state === 'running')
  if (!busy) return
  throw new MillraceError(
    'run_in_use',
    `another server with these settings already uses run ${busy.name}; stop it, or choose another run for this server with --run <name> (run.name)`,
    { data: { run: busy.name } },
  )
}

function requireServedRun({ env }: ResolvedRun, { run }: ServiceOptions): void {
  if (run?.name === undefined) return
  const existing = readRunFile(runFolder(rootOf(run, env), run.name))
  if (!existing || existing.config['isServed'] === true) return
  throw new MillraceError(
    'run_mismatch',
    `run ${run.name} belongs to an evaluation; choose another name for the server's run with --run (run.name)`,
    { data: { run: run.name } },
  )
}

function rootOf(run: ServiceOptions['run'], env: Variables): string {
  return run?.root ?? defaultRunsRoot(env)
}

export function serveMetrics(
  { telemetry, store, executor, codec, lag }: ServiceParts,
  counts: {
    readonly rollouts: { readonly running: number; readonly waiting: number }
    readonly accepted: ServiceStatus['accepted']
  },
): MetricsHub {
  const { rollouts, accepted } = counts
  return telemetry.metrics({
    rollouts: () => rollouts,
    models: () => executor.models(),
    workers: () => executor.workers(),
    servers: () => executor.servers(),
    loops: () => ({ front: lag.snapshot(), store: store.lag() }),
    journal: () => ({ pressure: store.journal.pressure, ...store.status() }),
    pools: () => {
      const { threads, queued, queueWaitP99Ms, queueWaitMaxMs } = codec.status()
      const waits = { waitP99Ms: queueWaitP99Ms, waitMaxMs: queueWaitMaxMs }
      return [{ name: 'codec', threads, queued, ...waits }, ...executor.offload()]
    },
    serve: () => ({ ...accepted, replyP99Ms: codec.status().replyP99Ms }),
  })
}

export function readinessOf(parts: {
  readonly state: ServiceState
  readonly hasStoreFailed: boolean
  readonly takesWork: boolean
  readonly workers: readonly WorkerStatus[]
}): Readiness {
  const { state, hasStoreFailed, takesWork, workers } = parts
  if (hasStoreFailed) return { isReady: false, why: 'the store accepts no more records' }
  if (state !== 'open') return { isReady: false, why: `the server is ${state}` }
  if (takesWork) return { isReady: true }
  // Those in quarantine, below zero, are not for what is sent now.
  const states = workers.flatMap(({ id, state: how }) => (id > 0 ? [`worker ${id} is ${how}`] : []))
  return { isReady: false, why: `no worker is ready: ${states.join(', ') || 'none could be started so far'}` }
}

/** As for `evaluate`, but tasks come with the requests; `attempts` is what a request gets by default, or the group's size. */
export interface ServiceOptions extends Omit<EvaluateOptions, 'limit' | 'maxCostUsd' | 'passThreshold'> {
  readonly bounds?: Partial<ServeBounds>
  /** Called with each durable result, and the name of the run that has it. */
  readonly onSettled?: (record: RolloutRecord, run: string) => void
}

const { limit: _limit, maxCostUsd: _maxCostUsd, passThreshold: _passThreshold, ...served } = evaluateOptionFields

const amount = z.number().min(0).optional()

export const serviceOptionsSchema = closedObject({
  ...served,
  bounds: closedObject({
    maxQueuedRollouts: amount,
    maxQueuedBytes: amount,
    maxTasksPerRequest: amount,
    maxTaskBytes: amount,
    maxBodyBytes: amount,
    maxBodiesBytes: amount,
    maxRememberedRequests: amount,
    abandonGraceMs: amount,
    maxSessions: amount,
    sessionIdleMs: amount,
  } satisfies Record<keyof ServeBounds, unknown>).optional(),
  onSettled: z.custom((given) => typeof given === 'function', 'expected a function').optional(),
} satisfies Record<keyof ServiceOptions, unknown>)

/** How much a server takes on, and so how much it can hold in memory. Beyond a bound it refuses; it never drops. */
export interface ServeBounds {
  /** Rollouts that were accepted and wait for a place; past it, `overloaded`. */
  readonly maxQueuedRollouts: number
  readonly maxQueuedBytes: number
  readonly maxTasksPerRequest: number
  /** One task is parsed and validated in one turn of the loop: a megabyte takes a few milliseconds. */
  readonly maxTaskBytes: number
  readonly maxBodyBytes: number
  readonly maxBodiesBytes: number
  /** Ended requests whose id is still known, the newest ones; about 300 bytes each. An older id counts as new. */
  readonly maxRememberedRequests: number
  /** How long a request with an id of the client's own goes on after its last client has gone. */
  readonly abandonGraceMs: number
  /** Of agents that run somewhere else: each has a state, whatever `setup` makes of that. */
  readonly maxSessions: number
  /** A session that nobody uses for this long is torn down. A model may think for long between two calls. */
  readonly sessionIdleMs: number
}

const mebibyte = 1024 * 1024

const defaultBounds: ServeBounds = {
  maxQueuedRollouts: 16_384,
  maxQueuedBytes: 256 * mebibyte,
  maxTasksPerRequest: 10_000,
  maxTaskBytes: mebibyte,
  maxBodyBytes: 64 * mebibyte,
  maxBodiesBytes: 256 * mebibyte,
  maxRememberedRequests: 100_000,
  abandonGraceMs: 15_000,
  maxSessions: 4_096,
  sessionIdleMs: 60 * 60_000,
}

export type ServiceState = 'open' | 'draining' | 'failed' | 'closed'

export interface ServiceStatus {
  readonly run: string
  readonly state: ServiceState
  /** Rollouts that wait for a place, and those that have one. */
  readonly queued: number
  readonly running: number
  readonly accepted: { readonly requests: number; readonly rollouts: number }
  readonly outcomes: Readonly<Partial<Record<Outcome, number>>>
  readonly workers: readonly WorkerStatus[]
  readonly models: readonly ModelStatus[]
  readonly servers: readonly ToolServerStatus[]
  readonly codec: CodecStatus
  readonly lag: LoopLagWindow
  readonly storeLag: LoopLagWindow
}
