import { MillraceError } from '../errors/index.ts'
import { offAbort, onAbort, type AbortListener } from './abort-source.ts'
import { SemaphoreLedger } from './semaphore-ledger.ts'
import { WaitingLine, type InLine } from './_waiting-line.ts'

/**
 * Where a semaphore keeps its numbers: in memory that several threads share, each of which makes a semaphore over the same
 * cells with a place of its own. Zeroed memory is a semaphore without permits: `resize` it.
 */
export interface SemaphoreCells {
  /** `Semaphore.cellsFor(places)` of them. */
  readonly cells: Int32Array
  readonly place: number
  /** Has the thread at that place call `collect` soon. */
  readonly wake: (place: number) => void
  /** Somebody begins to wait. */
  readonly onWait?: () => void
  readonly onRelease?: () => void
}

interface Waiter extends InLine<Waiter>, AbortListener {
  readonly grant: () => void
}

/**
 * Permits with a limit that can move while they are held. On one thread: first come, first served. Across threads each
 * place has a queue of its own, and a permit that comes free goes to the place that waits with the fewest in hand, so that
 * no thread starves behind another one's queue, and none goes back and forth between two that are equally well off. At
 * most one permit is on its way to a place: a thread that does not answer cannot hoard them.
 *
 * The queue is as long as there are callers, who bound it themselves; or, where `maxWaiting` is given, past that an acquire
 * fails with `overloaded` instead of waiting.
 */
export class Semaphore {
  readonly #ledger: SemaphoreLedger
  readonly #place: number
  readonly #shared: SemaphoreCells
  readonly #maxWaiting: number
  readonly #waiters = new WaitingLine<Waiter>()

  /** Given a limit, it is this thread's own. Given cells, their limit stays what it is. */
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

  /** By all places together. */
  get held(): number {
    return this.#ledger.held
  }

  /** At all places together. */
  get waiting(): number {
    return this.#ledger.waiting
  }

  /** At this place alone. */
  get waitingHere(): number {
    return this.#waiters.size
  }

  /** A smaller limit takes nothing back; it only holds new permits until enough were released. */
  resize(limit: number): void {
    this.#ledger.setLimit(limit)
    this.#passOn()
  }

  /** The same, unless the limit is no longer `from`: another thread was faster. */
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
          // Somebody who heard the same abort before it gave a permit back.
          if (!isWaiting) return
          if (signal) offAbort(signal, waiter)
          this.#leave(waiter)
          reject(signal?.reason)
        },
      }
      if (signal) onAbort(signal, waiter)
      this.#waiters.join(waiter)
      this.#ledger.countWaiting(1)
      // A permit that was released before this one was seen to wait went to nobody.
      this.#passOn()
      if (this.#waiters.size > 0) this.#shared.onWait?.()
    })
  }

  release(): void {
    this.#ledger.release()
    if (this.#ledger.waiting > 0) this.#passOn()
    this.#shared.onRelease?.()
  }

  /** Takes what other threads have sent here. Called after this place was woken. */
  collect(): void {
    let sent = this.#ledger.collect()
    if (sent === 0) return
    for (; sent > 0; sent -= 1) if (!this.#grant()) this.#ledger.release()
    // While something was on its way, nothing more was sent.
    this.#passOn()
  }

  /** Takes back what a place holds and waits for, because its thread is gone. If it says false, `audit` until that says true. */
  reclaim(place: number): boolean {
    const isWhole = this.#ledger.reclaim(place)
    this.#passOn()
    return isWhole
  }

  /** Finds what a thread that was ended as it counted has left uncounted. False if others are counting: try again later. */
  audit(): boolean {
    const isDone = this.#ledger.audit()
    this.#passOn()
    return isDone
  }

  /**
   * Gives free permits to those who wait. Whatever frees a permit or begins a wait ends here, so that none is left over
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

  /** Hands a claimed permit to whoever has waited longest here. False if nobody waits. */
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
