import type { MetricsHub } from '../telemetry/index.ts'
import type { ServiceParts } from './_service-parts.ts'
import type { ServiceStatus } from './service-status.ts'

/** The metrics of a process that serves: where each figure is read. */
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
