// One cell each for all places together, then a few for each place:
//
//   limit │ held │ waiting │ held, waiting, sent, counts │ held, waiting, sent, counts │ …
//
// The first `held` is the sum of `held` and `sent` of all places, the first `waiting` that of their `waiting`. `sent` counts
// permits that another thread claimed for the waiters of a place, and that these have yet to collect.
const limitCell = 0
const heldCell = 1
const waitingCell = 2
const headerCells = 3
const placeCells = 4
const waitingOffset = 1
const sentOffset = 2
const countsOffset = 3

const auditAttempts = 100

/** The most that a cell can hold. A larger limit is as good as none, and would wrap around to a small or negative one. */
const maxLimit = 2 ** 31 - 1

/**
 * How many permits each place holds and awaits, in memory that several threads may share. A thread counts at its own place
 * and in the sums, and can be ended from outside between the two. So each place also counts when it begins and when it ends
 * to count: an odd number is left by a thread that was ended in between, and even numbers that stay the same while the others
 * are read show that those belong together.
 */
export class SemaphoreLedger {
  readonly #cells: Int32Array
  /** Atomics cost 7 ns each even if no other thread looks, so memory that is not shared is used without them. */
  readonly #isShared: boolean
  readonly #places: number
  readonly #place: number
  readonly #own: number

  constructor(cells: Int32Array, place: number) {
    this.#cells = cells
    this.#isShared = cells.buffer instanceof SharedArrayBuffer
    this.#places = (cells.length - headerCells) / placeCells
    this.#place = place
    this.#own = cellOf(place)
  }

  static cellsFor(places: number): number {
    return headerCells + places * placeCells
  }

  get limit(): number {
    return this.#read(limitCell)
  }

  get held(): number {
    return this.#read(heldCell)
  }

  get waiting(): number {
    return this.#read(waitingCell)
  }

  setLimit(limit: number): void {
    Atomics.store(this.#cells, limitCell, Math.min(limit, maxLimit))
  }

  swapLimit(from: number, to: number): boolean {
    return Atomics.compareExchange(this.#cells, limitCell, from, Math.min(to, maxLimit)) === from
  }

  /** Takes a free permit for this place. */
  claim(): boolean {
    const cells = this.#cells
    if (!this.#isShared) {
      const held = cells[heldCell] as number
      if (held >= (cells[limitCell] as number)) return false
      cells[heldCell] = held + 1
      cells[this.#own]! += 1
      return true
    }
    for (;;) {
      const held = this.held
      if (held >= this.limit) return false
      this.#beginOrEnd()
      const isMine = Atomics.compareExchange(cells, heldCell, held, held + 1) === held
      if (isMine) Atomics.add(cells, this.#own, 1)
      this.#beginOrEnd()
      if (isMine) return true
    }
  }

  release(): void {
    const cells = this.#cells
    if (!this.#isShared) {
      cells[this.#own]! -= 1
      cells[heldCell]! -= 1
      return
    }
    this.#beginOrEnd()
    Atomics.sub(cells, this.#own, 1)
    Atomics.sub(cells, heldCell, 1)
    this.#beginOrEnd()
  }

  countWaiting(change: 1 | -1): void {
    this.#beginOrEnd()
    Atomics.add(this.#cells, this.#own + waitingOffset, change)
    Atomics.add(this.#cells, waitingCell, change)
    this.#beginOrEnd()
  }

  /** Sends a permit of this place to another. False if nobody waits there any more: then the permit is free again. */
  send(place: number): boolean {
    const cells = this.#cells
    const other = cellOf(place)
    this.#beginOrEnd()
    Atomics.sub(cells, this.#own, 1)
    Atomics.add(cells, other + sentOffset, 1)
    const isAwaited = Atomics.load(cells, other + waitingOffset) > 0
    // The waiter has left, or its thread has died and its place was taken back: nobody would collect the permit.
    if (!isAwaited) Atomics.sub(cells, heldCell, Atomics.exchange(cells, other + sentOffset, 0))
    this.#beginOrEnd()
    return isAwaited
  }

  /** Takes the permits that were sent to this place, and returns how many there were. */
  collect(): number {
    if (Atomics.load(this.#cells, this.#own + sentOffset) === 0) return 0
    this.#beginOrEnd()
    const sent = Atomics.exchange(this.#cells, this.#own + sentOffset, 0)
    Atomics.add(this.#cells, this.#own, sent)
    this.#beginOrEnd()
    return sent
  }

  /**
   * Of the places with waiters, the one with the fewest permits in hand, leaving out those to which one is on its way. Equals
   * come before this place if it has no permit, so that each gets a turn; if it has some, it comes before its equals.
   */
  neediest(): number | undefined {
    if (this.waiting === 0) return undefined
    let neediest: number | undefined
    let fewest = Number.POSITIVE_INFINITY
    for (let step = 1; step <= this.#places; step += 1) {
      const place = (this.#place + step) % this.#places
      const cell = cellOf(place)
      if (this.#read(cell + waitingOffset) === 0 || this.#read(cell + sentOffset) > 0) continue
      const held = this.#read(cell)
      if (held < fewest || (place === this.#place && held === fewest && held > 0)) {
        neediest = place
        fewest = held
      }
    }
    return neediest
  }

  /** Takes back what a place holds and waits for, because its thread is gone. False if the thread was ended while it counted. */
  reclaim(place: number): boolean {
    const cells = this.#cells
    const cell = cellOf(place)
    Atomics.sub(cells, waitingCell, Atomics.exchange(cells, cell + waitingOffset, 0))
    Atomics.sub(cells, heldCell, Atomics.exchange(cells, cell, 0))
    Atomics.sub(cells, heldCell, Atomics.exchange(cells, cell + sentOffset, 0))
    if (Atomics.load(cells, cell + countsOffset) % 2 === 0) return true
    Atomics.add(cells, cell + countsOffset, 1)
    return false
  }

  /** Corrects the sums by the numbers of the places. False if other threads are busy counting: try again. */
  audit(): boolean {
    for (let attempt = 0; attempt < auditAttempts; attempt += 1) {
      const before = this.#sum(countsOffset)
      const held = this.held
      const waiting = this.waiting
      const trulyHeld = this.#sum(0) + this.#sum(sentOffset)
      const trulyWaiting = this.#sum(waitingOffset)
      if (!this.#isAnyCounting() && this.#sum(countsOffset) === before) {
        Atomics.sub(this.#cells, heldCell, held - trulyHeld)
        Atomics.sub(this.#cells, waitingCell, waiting - trulyWaiting)
        return true
      }
    }
    return false
  }

  #beginOrEnd(): void {
    if (this.#isShared) Atomics.add(this.#cells, this.#own + countsOffset, 1)
  }

  #isAnyCounting(): boolean {
    for (let place = 0; place < this.#places; place += 1) {
      if (this.#read(cellOf(place) + countsOffset) % 2 !== 0) return true
    }
    return false
  }

  #sum(offset: number): number {
    let sum = 0
    for (let place = 0; place < this.#places; place += 1) sum += this.#read(cellOf(place) + offset)
    return sum
  }

  #read(cell: number): number {
    return this.#isShared ? Atomics.load(this.#cells, cell) : (this.#cells[cell] as number)
  }
}

function cellOf(place: number): number {
  return headerCells + place * placeCells
}
