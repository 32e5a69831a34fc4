import { LabelCap } from './_label-cap.ts'
import { metricFamilies, type FamilyKey, type MetricFamily } from './metric-families.ts'
import { Series } from './_series.ts'

/** What one set of labels has grown by. A plain value, to be sent to another thread or process. */
export interface SeriesDelta {
  readonly family: FamilyKey
  readonly labels: readonly string[]
  readonly values: readonly number[]
}

/** What a worker's counters and histograms have grown by since it last said so: only what changed. */
export type MetricsDelta = readonly SeriesDelta[]

/**
 * Counters and histograms of one thread. Whoever counts often keeps the series it counts in; looking one up costs more
 * than counting.
 */
export class MetricsRegistry {
  readonly #families = new Map<FamilyKey, Map<string, Series>>()
  readonly #cap = new LabelCap()

  series(family: FamilyKey, ...values: readonly string[]): Series {
    const { labels, buckets }: MetricFamily = metricFamilies[family]
    const admitted = labels.map((label, index) => this.#cap.admit(label, values[index] ?? ''))
    const key = admitted.join('\n')
    let all = this.#families.get(family)
    if (!all) this.#families.set(family, (all = new Map()))
    let series = all.get(key)
    if (!series) all.set(key, (series = new Series(admitted, buckets)))
    return series
  }

  all(family: FamilyKey): Iterable<Series> {
    return this.#families.get(family)?.values() ?? []
  }

  /** Undefined if nothing was counted since the last time. */
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
