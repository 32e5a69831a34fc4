import type { AttemptResult } from '../rollout/index.ts'
import type { RolloutRecord } from '../schema/index.ts'
import { exposition } from './_exposition.ts'
import { metricFamilies, type FamilyKey } from './metric-families.ts'
import type { MetricsRegistry } from './metrics-registry.ts'
import { stateReadings, type MetricsSources } from './_state-readings.ts'

const familyKeys = Object.keys(metricFamilies) as readonly FamilyKey[]

/**
 * The metrics of a whole process: the counts of its own thread, the counts that workers sent, and the state at the moment
 * somebody asks. Counts of a worker that was replaced stay.
 */
export class MetricsHub {
  readonly contentType = 'text/plain; version=0.0.4; charset=utf-8'
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
  rolloutLost({ verdict }: Pick<Extract<AttemptResult, { kind: 'lost' }>, 'verdict'>): void {
    this.#registry.series('rolloutsLost', verdict).add()
  }

  async text(): Promise<string> {
    const readings = stateReadings(this.#sources)
    let text = ''
    for (const key of familyKeys) {
      text += exposition(metricFamilies[key], [...this.#registry.all(key), ...readings.all(key)])
    }
    return text
  }
}
