import type { LoopLagWindow } from '../kit/index.ts'
import type { OffloadStatus } from '../rollout/index.ts'
import type { MetricsHub, MetricsSources, Telemetry } from '../telemetry/index.ts'
import type { ServiceStatus } from './service-status.ts'

/** The metrics of a process that serves: where each figure is read. */
export function serveMetrics(
  telemetry: Telemetry,
  parts: {
    readonly status: () => ServiceStatus
    readonly journal: NonNullable<MetricsSources['journal']>
    readonly storeLag: () => LoopLagWindow
    readonly offload: () => readonly OffloadStatus[]
  },
): MetricsHub {
  const { status, journal, storeLag, offload } = parts
  return telemetry.metrics({
    rollouts: () => ({ running: status().running, waiting: status().queued }),
    models: () => status().models,
    workers: () => status().workers,
    loops: () => ({ front: status().lag, store: storeLag() }),
    journal,
    pools: () => {
      const { threads, queued, queueWaitP99Ms, queueWaitMaxMs } = status().codec
      return [{ name: 'codec', threads, queued, waitP99Ms: queueWaitP99Ms, waitMaxMs: queueWaitMaxMs }, ...offload()]
    },
    serve: () => ({ ...status().accepted, replyP99Ms: status().codec.replyP99Ms }),
  })
}
