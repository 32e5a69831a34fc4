/** What a benchmark file exports as `benchmark`. */
export type Benchmark = (options: { isQuick: boolean; say: (line: string) => void }) => Promise<BenchmarkResult>

export interface BenchmarkResult {
  readonly table: readonly string[]
  readonly figures: Readonly<Record<string, number>>
  readonly bars: readonly Bar[]
}

export interface Bar {
  readonly name: string
  readonly value: number
  readonly bar: string
  readonly holds: boolean
}

export function atMost(name: string, value: number, limit: number): Bar {
  return { name, value, bar: `at most ${limit}`, holds: value <= limit }
}

export function atLeast(name: string, value: number, limit: number): Bar {
  return { name, value, bar: `at least ${limit}`, holds: value >= limit }
}

export function median(values: readonly number[]): number {
  const sorted = values.toSorted((one, other) => one - other)
  const middle = Math.floor(sorted.length / 2)
  const upper = sorted[middle] ?? Number.NaN
  return sorted.length % 2 === 1 ? upper : ((sorted[middle - 1] ?? Number.NaN) + upper) / 2
}

/** Aligned columns: the first to the left, the others to the right. */
export function table(rows: readonly (readonly string[])[]): string[] {
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => (row[column] ?? '').length)))
  return rows.map((row) =>
    row
      .map((cell, column) => (column === 0 ? cell.padEnd(widths[column] ?? 0) : cell.padStart(widths[column] ?? 0)))
      .join('  '),
  )
}
