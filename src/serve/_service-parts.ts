import { giveUpRun, keepingChanges, openExecutor, takeUpRun, type ResolvedRun, type RunInfo } from '../eval/index.ts'
import { LoopLag } from '../kit/index.ts'
import type { Executor } from '../rollout/index.ts'
import type { RunStore } from '../store/index.ts'
import { startTelemetry, type MetricsDelta, type Telemetry } from '../telemetry/index.ts'
import { openServedRun } from './_open-served-run.ts'
import { CodecPool } from './codec-pool.ts'
import { defaultBounds, type ServeBounds } from './serve-bounds.ts'
import type { ServiceOptions } from './service-options.ts'

/** What a service stands on: opened together, closed together. */
export interface ServiceParts {
  readonly bounds: ServeBounds
  readonly resolved: ResolvedRun
  readonly info: RunInfo
  /** What every draw of the run starts from. */
  readonly seed: number
  readonly store: RunStore
  /** Puts down, with the first rollout that starts or group that is scored, that the code has changed since the run began. */
  readonly keepChanges: () => void
  readonly telemetry: Telemetry
  readonly executor: Executor
  readonly codec: CodecPool
  readonly lag: LoopLag
}

/** `started` closes what was opened, and gives up the run, until somebody takes it over. */
export async function openServiceParts(options: ServiceOptions, started: AsyncDisposableStack): Promise<ServiceParts> {
  const bounds = { ...defaultBounds, ...options.bounds }
  const { resolved, opened } = await openServedRun(options)
  started.defer(() => giveUpRun(opened))
  const { store, name, seed } = opened
  const telemetry = started.use(startTelemetry({ env: resolved.env, run: name, metrics: true }))
  const counted = { run: name, metrics: true, onMetrics: (delta: MetricsDelta) => telemetry.merge(delta) }
  const executor = started.use(await openExecutor(store, resolved, options, counted))
  const codec = started.use(await CodecPool.start(store.folder))
  const signal = options.signal ?? new AbortController().signal
  const silent = (options.preflight ?? true) ? await executor.preflight(signal) : []
  const { info: taken, changedCode } = await takeUpRun(opened, resolved.config, options.run ?? {})
  const info = { ...taken, notices: [...taken.notices, ...silent] }
  const keepChanges = keepingChanges(store, changedCode)
  const lag = started.use(new LoopLag())
  return { bounds, resolved, info, seed, store, keepChanges, telemetry, executor, codec, lag }
}

/** From the last to the first; `end` is how this sitting of the run ended. */
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
