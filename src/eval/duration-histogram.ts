const smallestMs = 0.01
const growth = 1.04
const logGrowth = Math.log(growth)
// Up to ten days; longer durations count as that.
const bucketCount = Math.ceil(Math.log((10 * 86_400_000) / smallestMs) / logGrowth) + 1

/**
 * Durations in about 650 buckets, each 4% wider than the one before it: any quantile of any number of durations within 2%, in 5
 * kB. A duration below 0.01 ms counts as 0.
 */
export class DurationHistogram {
  readonly #buckets = new Float64Array(bucketCount)
  #count = 0
  #minMs = Number.POSITIVE_INFINITY
  #maxMs = 0

  get count(): number {
    return this.#count
  }

  add(durationMs: number): void {
    // A clock that was set back gives negative durations.
    const ms = durationMs > 0 ? durationMs : 0
    const bucket = ms < smallestMs ? 0 : 1 + Math.floor(Math.log(ms / smallestMs) / logGrowth)
    const index = Math.min(bucket, bucketCount - 1)
    this.#buckets[index] = (this.#buckets[index] ?? 0) + 1
    this.#count += 1
    if (ms < this.#minMs) this.#minMs = ms
    if (ms > this.#maxMs) this.#maxMs = ms
  }

  /** The smallest duration that at least the share `quantile` (0 to 1) does not exceed; NaN if there are no durations. */
  quantileMs(quantile: number): number {
    if (this.#count === 0) return Number.NaN
    const rank = Math.max(1, Math.ceil(quantile * this.#count))
    let seen = 0
    for (let index = 0; index < bucketCount; index += 1) {
      seen += this.#buckets[index] ?? 0
      if (seen >= rank) return Math.min(this.#maxMs, Math.max(this.#minMs, middleMs(index)))
    }
    return this.#maxMs
  }
}

function middleMs(index: number): number {
  return index === 0 ? 0 : smallestMs * growth ** (index - 0.5)
}
