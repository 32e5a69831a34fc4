import { LabelCap } from './_label-cap.ts'
import { metricFamilies, type FamilyKey, type MetricFamily } from './metric-families.ts'
import { Series } from './_series.ts'

/** The growth of one series. A plain value, to be sent to another thread or process. */
export interface SeriesDelta {
  readonly family: FamilyKey
  readonly labels: readonly string[]
  readonly values: readonly number[]
}

/** The growth of a worker's counters and histograms since it last sent one: only series that changed. */
export type MetricsDelta = readonly SeriesDelta[]

/** Counters and histograms of one thread. Code that counts often keeps its series: looking one up costs more than counting. */
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

  /** The growth since the last call; undefined if nothing was counted. */
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
