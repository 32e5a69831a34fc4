/** The figures of one set of labels: one for a counter; the buckets, `+Inf` and the sum for a histogram. */
export class Series {
  readonly labels: readonly string[]
  readonly values: Float64Array
  readonly #bounds: readonly number[]
  #taken: Float64Array | undefined

  constructor(labels: readonly string[], bounds: readonly number[] | undefined) {
    this.labels = labels
    this.#bounds = bounds ?? []
    this.values = new Float64Array(bounds ? bounds.length + 2 : 1)
  }

  /** Increases a counter. */
  add(amount = 1): void {
    this.values[0] = (this.values[0] ?? 0) + amount
  }

  /** Keeps the larger of the present value and this one. */
  raise(value: number): void {
    this.values[0] = Math.max(this.values[0] ?? 0, value)
  }

  /** Puts a value into its bucket. */
  observe(value: number): void {
    const bounds = this.#bounds
    let bucket = 0
    while (bucket < bounds.length && value > (bounds[bucket] ?? Infinity)) bucket += 1
    this.#increase(bucket, 1)
    this.#increase(bounds.length + 1, value)
  }

  merge(more: readonly number[]): void {
    for (let index = 0; index < this.values.length; index += 1) this.#increase(index, more[index] ?? 0)
  }

  /** What was added since the last call; undefined if nothing was. */
  take(): number[] | undefined {
    const { values } = this
    const taken = (this.#taken ??= new Float64Array(values.length))
    if (values.every((value, index) => value === taken[index])) return undefined
    const more = Array.from(values, (value, index) => value - (taken[index] ?? 0))
    taken.set(values)
    return more
  }

  #increase(index: number, amount: number): void {
    this.values[index] = (this.values[index] ?? 0) + amount
  }
}
