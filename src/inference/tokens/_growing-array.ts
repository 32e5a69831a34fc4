type NumberArray = Int32Array<ArrayBuffer> | Float32Array<ArrayBuffer>

/** A typed array that grows: numbers arrive one by one or in pieces, and leave as one array without ever being boxed. */
export class GrowingArray<Values extends NumberArray> {
  readonly #create: (length: number) => Values
  /** Shared memory to begin with. Other arrays use it too, once this one is whole. */
  readonly #scratch: Values | undefined
  #values: Values
  #length = 0

  constructor(create: (length: number) => Values, scratch?: Values) {
    this.#create = create
    this.#scratch = scratch
    this.#values = scratch ?? create(0)
  }

  get length(): number {
    return this.#length
  }

  /** The memory in use, including room that is not filled yet. */
  get byteLength(): number {
    return this.#values.byteLength
  }

  push(value: number): void {
    if (this.#length === this.#values.length) this.#grow(this.#length + 1)
    this.#values[this.#length] = value
    this.#length += 1
  }

  /** Adds a piece. The first piece is kept without a copy, so a reply that comes whole is never copied. */
  append(piece: Values): void {
    if (this.#length === 0) {
      this.#values = piece
      this.#length = piece.length
      return
    }
    const length = this.#length + piece.length
    if (length > this.#values.length) this.#grow(length)
    this.#values.set(piece, this.#length)
    this.#length = length
  }

  /** All values, without a copy. In shared memory they are valid only until another array uses it. */
  view(): Values {
    return this.#values.subarray(0, this.#length) as Values
  }

  /** All values in memory of their own, which can be given to another thread. */
  whole(): Values {
    if (this.#length === this.#values.length && this.#values !== this.#scratch) return this.#values
    const exact = this.#create(this.#length)
    exact.set(this.#values.subarray(0, this.#length))
    return exact
  }

  #grow(atLeast: number): void {
    const grown = this.#create(Math.max(atLeast, 2 * this.#values.length, minCapacity))
    grown.set(this.#values.subarray(0, this.#length))
    this.#values = grown
  }
}

const minCapacity = 64

const idScratch = new Int32Array(4096)
const logprobScratch = new Float32Array(4096)

/**
 * Arrays for numbers that are read in one go: most lists fit into the shared memory. Only one of each kind may be in use at
 * a time.
 */
export function scannedIds(): GrowingArray<Int32Array<ArrayBuffer>> {
  return new GrowingArray((length) => new Int32Array(length), idScratch)
}

export function scannedLogprobs(): GrowingArray<Float32Array<ArrayBuffer>> {
  return new GrowingArray((length) => new Float32Array(length), logprobScratch)
}

export function growingIds(): GrowingArray<Int32Array<ArrayBuffer>> {
  return new GrowingArray((length) => new Int32Array(length))
}

export function growingLogprobs(): GrowingArray<Float32Array<ArrayBuffer>> {
  return new GrowingArray((length) => new Float32Array(length))
}
