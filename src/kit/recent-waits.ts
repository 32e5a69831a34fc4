const kept = 512

/** The last few hundred waits: they show what is slow now rather than an hour ago. */
export class RecentWaits {
  readonly #waitsMs = new Float64Array(kept)
  #count = 0

  add(ms: number): void {
    this.#waitsMs[this.#count % kept] = ms
    this.#count += 1
  }

  get p99Ms(): number {
    const waits = this.#known.toSorted()
    return waits[Math.ceil(waits.length * 0.99) - 1] ?? 0
  }

  get maxMs(): number {
    return this.#known.reduce((worst, each) => Math.max(worst, each), 0)
  }

  get #known(): Float64Array {
    return this.#waitsMs.subarray(0, Math.min(this.#count, kept))
  }
}
