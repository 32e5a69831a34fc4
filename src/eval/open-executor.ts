import { join } from 'node:path'
import { InlineExecutor, recordBlocked, recordLimitChange, type Executor } from '../rollout/index.ts'
import type { RunStore } from '../store/index.ts'
import type { MetricsDelta, TelemetryOptions } from '../telemetry/index.ts'
import { WorkerPool } from '../worker/index.ts'
import type { EvaluateOptions } from './evaluation.ts'
import type { ResolvedRun } from './resolve-run.ts'

/** What workers count and trace, as this thread does. */
export interface WorkerTelemetry extends Pick<TelemetryOptions, 'run' | 'metrics'> {
  readonly onMetrics: (delta: MetricsDelta) => void
}

/** Opens the place where the rollouts of a run are carried out. The caller closes it, before the store. */
export async function openExecutor(
  store: RunStore,
  resolved: ResolvedRun,
  options: EvaluateOptions,
  telemetry: WorkerTelemetry | undefined,
): Promise<Executor> {
  const { env, loaded, supervision, config } = resolved
  const settings = { ...resolved.settings, outputsFolder: join(store.folder, 'outputs') }
  if (config.workers === null || loaded.specifier === undefined) {
    return new InlineExecutor({
      environment: loaded.environment,
      options: loaded.options,
      settings,
      models: config.models,
      env,
      journal: store.journal,
      ...(loaded.specifier !== undefined && {
        module: { specifier: loaded.specifier, options: options.options ?? {} },
      }),
      ...(options.backends && { backends: options.backends }),
    })
  }
  return await WorkerPool.start({
    size: config.workers,
    kind: loaded.environment.isolation ?? 'thread',
    start: {
      specifier: loaded.specifier,
      options: options.options ?? {},
      settings,
      models: config.models,
      ...(telemetry && { telemetry: { run: telemetry.run, metrics: telemetry.metrics } }),
    },
    supervision,
    connectJournal: () => store.connect(),
    onLimitChange: (change) => recordLimitChange(store.journal, change),
    onBlocked: (blocked) => recordBlocked(store.journal, blocked),
    ...(telemetry && { onMetrics: telemetry.onMetrics }),
  })
}
