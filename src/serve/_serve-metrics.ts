import type { LoopLag } from '../kit/index.ts'
import type { Executor } from '../rollout/index.ts'
import type { RunStore } from '../store/index.ts'
import type { MetricsHub, Telemetry } from '../telemetry/index.ts'
import type { CodecPool } from './codec-pool.ts'
import type { ServiceStatus } from './service-status.ts'

/** The metrics of a process that serves: where each figure is read. */
export function serveMetrics(
  telemetry: Telemetry,
  parts: {
    readonly store: RunStore
    readonly executor: Executor
    readonly codec: CodecPool
    readonly lag: LoopLag
    readonly rollouts: { readonly running: number; readonly waiting: number }
    readonly accepted: ServiceStatus['accepted']
  },
): MetricsHub {
  const { store, executor, codec, lag, rollouts, accepted } = parts
  return telemetry.metrics({
    rollouts: () => rollouts,
    models: () => executor.models(),
    workers: () => executor.workers(),
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
