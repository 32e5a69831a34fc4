export interface ParsedMetric {
  readonly type: string
  readonly samples: readonly { name: string; labels: Readonly<Record<string, string>>; value: number }[]
}

const namePattern = '[a-zA-Z_:][a-zA-Z0-9_:]*'
const sampleLine = new RegExp(`^(${namePattern})(?:\\{(.*)\\})? (\\S+)$`)
const labelPair = /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"(,|$)/y

/** Reads Prometheus' text format and refuses everything that the format does not allow. */
export function parseMetrics(text: string): Map<string, ParsedMetric> {
  if (!text.endsWith('\n')) throw new Error('the last line has no end')
  const metrics = new Map<string, { type: string; samples: ParsedMetric['samples'][number][] }>()
  const seen = new Set<string>()
  let current = ''
  let helpOf = ''
  for (const line of text.slice(0, -1).split('\n')) {
    const [, keyword, name = '', rest = ''] = /^# (HELP|TYPE) (\S+) (.+)$/.exec(line) ?? []
    if (keyword === 'HELP') {
      if (metrics.has(name)) throw new Error(`${name} is described twice`)
      helpOf = name
    } else if (keyword === 'TYPE') {
      if (helpOf !== name) throw new Error(`the type of ${name} does not follow its help`)
      if (!['counter', 'gauge', 'histogram'].includes(rest)) throw new Error(`${name} has no type: ${rest}`)
      metrics.set(name, { type: rest, samples: [] })
      current = name
    } else {
      const sample = parseSample(line)
      const metric = metrics.get(current)
      const suffix = sample.name.slice(current.length)
      const suffixes = metric?.type === 'histogram' ? ['_bucket', '_sum', '_count'] : ['']
      if (!sample.name.startsWith(current) || !suffixes.includes(suffix)) throw new Error(`out of its place: ${line}`)
      const key = line.slice(0, line.lastIndexOf(' '))
      if (seen.has(key)) throw new Error(`twice: ${key}`)
      seen.add(key)
      metric?.samples.push(sample)
    }
  }
  for (const [name, metric] of metrics) {
    if (metric.samples.length === 0) throw new Error(`${name} has no samples`)
    if (metric.type === 'histogram') checkHistogram(name, metric.samples)
    if (metric.type === 'counter' && !name.endsWith('_total')) throw new Error(`counter ${name} does not end in _total`)
  }
  return metrics
}

function parseSample(line: string): ParsedMetric['samples'][number] {
  const [, name, pairs = '', figure] = sampleLine.exec(line) ?? []
  if (name === undefined || figure === undefined) throw new Error(`no sample: ${line}`)
  const value = Number(figure)
  if (!Number.isFinite(value)) throw new Error(`no number: ${line}`)
  const labels: Record<string, string> = {}
  labelPair.lastIndex = 0
  for (let at = 0; at < pairs.length; at = labelPair.lastIndex) {
    const [whole, label = '', text = ''] = labelPair.exec(pairs) ?? []
    if (whole === undefined) throw new Error(`bad labels: ${line}`)
    if (label in labels) throw new Error(`label ${label} twice: ${line}`)
    labels[label] = text.replaceAll(/\\(.)/g, (_, letter: string) => (letter === 'n' ? '\n' : letter))
  }
  return { name, labels, value }
}

/** Buckets grow, end in `+Inf`, and that is the count. */
function checkHistogram(name: string, samples: ParsedMetric['samples']): void {
  const byLabels = Map.groupBy(samples, ({ labels: { le: _le, ...rest } }) => JSON.stringify(rest))
  for (const [labels, group] of byLabels) {
    const buckets = group.filter((sample) => sample.name === `${name}_bucket`)
    const bounds = buckets.map((sample) => (sample.labels['le'] === '+Inf' ? Infinity : Number(sample.labels['le'])))
    const counts = buckets.map(({ value }) => value)
    const isAscending = (values: readonly number[]): boolean =>
      values.every((value, index) => index === 0 || value >= (values[index - 1] ?? NaN))
    const total = group.find((sample) => sample.name === `${name}_count`)?.value
    const isComplete = bounds.at(-1) === Infinity && counts.at(-1) === total
    const hasSum = group.some((sample) => sample.name === `${name}_sum`)
    if (!isAscending(bounds) || !isAscending(counts) || !isComplete || !hasSum) throw new Error(`bad ${name}${labels}`)
  }
}

/** The sum over all samples with these labels. */
export function sumOf(
  metrics: ReadonlyMap<string, ParsedMetric>,
  name: string,
  labels: Readonly<Record<string, string>> = {},
): number {
  const base = name.replace(/_(sum|count|bucket)$/, '')
  const samples =
    metrics.get(name)?.samples ?? metrics.get(base)?.samples.filter((sample) => sample.name === name) ?? []
  return samples
    .filter((sample) => Object.entries(labels).every(([label, value]) => sample.labels[label] === value))
    .reduce((sum, { value }) => sum + value, 0)
}
