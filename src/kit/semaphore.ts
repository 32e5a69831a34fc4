import { MillraceError } from '../errors/index.ts'
import { offAbort, onAbort, type AbortListener } from './abort-source.ts'
import { SemaphoreLedger } from './semaphore-ledger.ts'
import { LinkedQueue, type Linked } from './_linked-queue.ts'

/**
 * Where a semaphore keeps its numbers: in memory that several threads share. Each thread makes a semaphore over the same
 * cells with a place of its own. Zeroed memory is a semaphore without permits: `resize` it.
 */
export interface SemaphoreCells {
  /** As many cells as `Semaphore.cellsFor(places)` says. */
  readonly cells: Int32Array
  readonly place: number
  /** Makes the thread at that place call `collect` soon. */
  readonly wake: (place: number) => void
  /** Called when a caller begins to wait. */
  readonly onWait?: () => void
  readonly onRelease?: () => void
}

interface Waiter extends Linked<Waiter>, AbortListener {
  readonly grant: () => void
}

/**
 * Permits with a limit that can move while they are held. On one thread: first come, first served. Across threads each
 * place has a queue of its own, and a permit that comes free goes to the waiting place with the fewest in hand, so that
 * no thread starves behind another one's queue, and no permit goes back and forth between two that are equally well off. At
 * most one permit is on its way to a place: a thread that does not answer cannot hoard them.
 *
 * Callers bound the queue themselves. If `maxWaiting` is given, an acquire past it fails with `overloaded` instead of
 * waiting.
 */
export class Semaphore {
  readonly #ledger: SemaphoreLedger
  readonly #place: number
  readonly #shared: SemaphoreCells
  readonly #maxWaiting: number
  readonly #waiters = new LinkedQueue<Waiter>()

  /** With a limit, the semaphore is this thread's own. With cells, their limit stays what it is. */
  constructor(limitOrCells: number | SemaphoreCells, maxWaiting = Number.POSITIVE_INFINITY) {
    this.#shared = typeof limitOrCells === 'number' ? ownCells() : limitOrCells
    this.#place = this.#shared.place
    this.#ledger = new SemaphoreLedger(this.#shared.cells, this.#place)
    this.#maxWaiting = maxWaiting
    if (typeof limitOrCells === 'number') this.#ledger.setLimit(limitOrCells)
  }

  static cellsFor(places: number): number {
    return SemaphoreLedger.cellsFor(places)
  }

  get limit(): number {
    return this.#ledger.limit
  }

  /** Permits held at all places together. */
  get held(): number {
    return this.#ledger.held
  }

  /** Callers that wait at all places together. */
  get waiting(): number {
    return this.#ledger.waiting
  }

  /** Callers that wait at this place. */
  get waitingHere(): number {
    return this.#waiters.size
  }

  /** Sets the limit. A smaller one takes no permit back; it only holds new ones back until enough were released. */
  resize(limit: number): void {
    this.#ledger.setLimit(limit)
    this.#passOn()
  }

  /** Sets the limit if it is still `from`. False if another thread was faster. */
  tryResize(from: number, to: number): boolean {
    if (!this.#ledger.swapLimit(from, to)) return false
    this.#passOn()
    return true
  }

  /** True if a permit was free; the caller then owes a `release`. The cheap path: no promise, no permit object. */
  tryAcquire(): boolean {
    return this.#ledger.waiting === 0 && this.#ledger.claim()
  }

  /** Waits for a permit; the caller then owes a `release`. */
  acquire(signal?: AbortSignal): Promise<void> {
    if (signal?.aborted) return Promise.reject(signal.reason)
    if (this.tryAcquire()) return Promise.resolve()
    if (this.#waiters.size >= this.#maxWaiting) {
      return Promise.reject(new MillraceError('overloaded', `more than ${this.#maxWaiting} are waiting already`))
    }
    return new Promise((resolve, reject) => {
      let isWaiting = true
      const waiter: Waiter = {
        ahead: undefined,
        behind: undefined,
        grant: () => {
          isWaiting = false
          if (signal) offAbort(signal, waiter)
          resolve()
        },
        handleEvent: () => {
          // Another listener heard the same abort first and released a permit, which this waiter got.
          if (!isWaiting) return
          if (signal) offAbort(signal, waiter)
          this.#leave(waiter)
          reject(signal?.reason)
        },
      }
      if (signal) onAbort(signal, waiter)
      this.#waiters.join(waiter)
      this.#ledger.countWaiting(1)
      // A permit that was released before this waiter was counted went to nobody.
      this.#passOn()
      if (this.#waiters.size > 0) this.#shared.onWait?.()
    })
  }

  release(): void {
    this.#ledger.release()
    if (this.#ledger.waiting > 0) this.#passOn()
    this.#shared.onRelease?.()
  }

  /** Takes the permits that other threads have sent here. Called after this place was woken. */
  collect(): void {
    let sent = this.#ledger.collect()
    if (sent === 0) return
    for (; sent > 0; sent -= 1) if (!this.#grant()) this.#ledger.release()
    // While a permit was on its way here, no other was sent.
    this.#passOn()
  }

  /** Takes back what a place holds and waits for, because its thread is gone. If false, call `audit` until that returns true. */
  reclaim(place: number): boolean {
    const isWhole = this.#ledger.reclaim(place)
    this.#passOn()
    return isWhole
  }

  /** Corrects the sums after a thread was ended while it counted. False if others are counting: try again later. */
  audit(): boolean {
    const isDone = this.#ledger.audit()
    this.#passOn()
    return isDone
  }

  /**
   * Gives free permits to waiters. Everything that frees a permit or begins a wait ends here, so that no permit is left over
   * while somebody waits: of two threads that do this at once, the later one sees what both have done.
   */
  #passOn(): void {
    for (;;) {
      const place = this.#ledger.neediest()
      if (place === undefined || !this.#ledger.claim()) return
      if (place === this.#place) this.#grant()
      else if (this.#ledger.send(place)) this.#shared.wake(place)
    }
  }

  /** Hands a claimed permit to the waiter that has waited longest here. False if there is none. */
  #grant(): boolean {
    const waiter = this.#waiters.first
    if (!waiter) return false
    this.#leave(waiter)
    waiter.grant()
    return true
  }

  #leave(waiter: Waiter): void {
    this.#waiters.leave(waiter)
    this.#ledger.countWaiting(-1)
  }
}

function ownCells(): SemaphoreCells {
  return { cells: new Int32Array(Semaphore.cellsFor(1)), place: 0, wake: () => undefined }
}
