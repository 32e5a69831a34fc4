import type { MetricFamily } from './metric-families.ts'
import type { Series } from './_series.ts'

/** One family in Prometheus' text format; nothing if it has no series. */
export function exposition(family: MetricFamily, all: Iterable<Pick<Series, 'labels' | 'values'>>): string {
  const { name, kind, help, labels, buckets } = family
  let text = ''
  for (const series of all) {
    const pairs = labels.map((label, index) => `${label}="${escaped(series.labels[index] ?? '')}"`).join(',')
    text += buckets ? histogramLines(name, pairs, buckets, series.values) : line(name, pairs, series.values[0])
  }
  return text && `# HELP ${name} ${help}\n# TYPE ${name} ${kind}\n${text}`
}

function histogramLines(name: string, pairs: string, buckets: readonly number[], values: Float64Array): string {
  const head = pairs && `${pairs},`
  let text = ''
  let count = 0
  for (const [index, bound] of [...buckets, '+Inf'].entries()) {
    count += values[index] ?? 0
    text += line(`${name}_bucket`, `${head}le="${bound}"`, count)
  }
  return text + line(`${name}_sum`, pairs, values[buckets.length + 1]) + line(`${name}_count`, pairs, count)
}

function line(name: string, pairs: string, value = 0): string {
  return `${name}${pairs && `{${pairs}}`} ${value}\n`
}

function escaped(value: string): string {
  return value.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n')
}
