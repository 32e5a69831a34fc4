import { AsyncResource } from 'node:async_hooks'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { MillraceError } from '../../errors/index.ts'
import { type AbortListener, offAbort, onAbort, timerMs } from './lifecycle.ts'

interface SemaphoreListener {
  readonly onWait?: () => void
  readonly onRelease?: () => void
}

interface Waiter<Result, Item> extends AbortListener {
  readonly item: Item
  readonly signal: AbortSignal | undefined
  readonly resolve: (result: Result) => void
  readonly reject: (reason: unknown) => void
}

/** Callers that wait, first come first served. One whose signal aborts leaves. */
export class WaitList<Result = void, Item = void> {
  // A Set iterates in insertion order, so the first has waited longest.
  readonly #waiters = new Set<Waiter<Result, Item>>()

  get size(): number {
    return this.#waiters.size
  }

  /** What the caller that has waited longest waits with. */
  get first(): Item | undefined {
    const [first] = this.#waiters
    return first?.item
  }

  /** The caller checks first that the signal has not aborted. `onLeave` is called when it does. */
  wait(signal: AbortSignal | undefined, item: Item, onLeave?: () => void): Promise<Result> {
    return new Promise((resolve, reject) => {
      const handleEvent = (): void => {
        // Another listener heard the same abort first and ended this wait.
        if (!this.#remove(waiter)) return
        reject(signal?.reason)
        onLeave?.()
      }
      const waiter = { item, signal, resolve, reject, handleEvent }
      if (signal) onAbort(signal, waiter)
      this.#waiters.add(waiter)
    })
  }

  /** Ends the longest wait; false if nobody waits. */
  resolveFirst(result: Result): boolean {
    const [first] = this.#waiters
    if (!first) return false
    this.#remove(first)
    first.resolve(result)
    return true
  }

  resolveAll(result: Result): void {
    while (this.size > 0) this.resolveFirst(result)
  }

  rejectAll(reason: () => unknown): void {
    for (const waiter of this.#waiters) {
      this.#remove(waiter)
      waiter.reject(reason())
    }
  }

  #remove(waiter: Waiter<Result, Item>): boolean {
    if (waiter.signal) offAbort(waiter.signal, waiter)
    return this.#waiters.delete(waiter)
  }
}

/**
 * Permits with a limit that can move while they are held: first come, first served. Callers bound the queue themselves. If
 * `maxWaiting` is given, an acquire past it fails with `overloaded` instead of waiting.
 */
export class Semaphore {
  #limit: number
  #held = 0
  readonly #maxWaiting: number
  readonly #listener: SemaphoreListener
  readonly #waiters = new WaitList()

  constructor(limit: number, maxWaiting = Number.POSITIVE_INFINITY, listener: SemaphoreListener = {}) {
    this.#limit = limit
    this.#maxWaiting = maxWaiting
    this.#listener = listener
  }

  get limit(): number {
    return this.#limit
  }

  get held(): number {
    return this.#held
  }

  get waiting(): number {
    return this.#waiters.size
  }

  /** Sets the limit. A smaller one takes no permit back; it only holds new ones back until enough were released. */
  resize(limit: number): void {
    this.#limit = limit
    this.#passOn()
  }

  /** True if a permit was free; the caller then owes a `release`. */
  tryAcquire(): boolean {
    if (this.#waiters.size > 0 || this.#held >= this.#limit) return false
    this.#held += 1
    return true
  }

  acquire(signal?: AbortSignal): Promise<void> {
    if (signal?.aborted) return Promise.reject(signal.reason)
    if (this.tryAcquire()) return Promise.resolve()
    if (this.#waiters.size >= this.#maxWaiting) {
      return Promise.reject(
        new MillraceError('overloaded', `more than ${this.#maxWaiting} callers are already waiting`),
      )
    }
    const granted = this.#waiters.wait(signal)
    this.#listener.onWait?.()
    return granted
  }

  release(): void {
    this.#held -= 1
    this.#passOn()
    this.#listener.onRelease?.()
  }

  #passOn(): void {
    while (this.#held < this.#limit && this.#waiters.resolveFirst()) this.#held += 1
  }
}

export type ExhaustedClock = 'time' | 'wall'

interface StopClockOptions {
  readonly limitMs: number
  /** A limit for all the time that passes, also while the clock stands still. */
  readonly wallMs?: number
  /** Called when either limit is spent, if the clock is watched. */
  readonly onSpent: (what: ExhaustedClock) => void
}

/**
 * A deadline whose clock can stand still: no time passes while a caller waits for something that is not its own doing.
 * Waits may overlap; the clock goes on when the last of them ends.
 *
 * Waits only ever put the deadline off, so they leave the timer alone: one that fires too early is set again.
 */
export class StopClock {
  readonly #limitMs: number
  readonly #onSpent: (what: ExhaustedClock) => void
  readonly #startedAt = performance.now()
  readonly #wallEndsAt: number
  #stoppedAt: number | undefined
  #carriedMs = 0
  #waiting = 0
  #waitStartedAt = 0
  #waitedMs = 0
  #timer: NodeJS.Timeout | undefined
  /** When the timer is due; Infinity if the clock is not watched, or if nothing can run out as things are. */
  #dueAt = Infinity
  #isWatched = false

  constructor({ limitMs, wallMs = Infinity, onSpent }: StopClockOptions) {
    this.#limitMs = limitMs
    this.#wallEndsAt = this.#startedAt + wallMs
    this.#onSpent = onSpent
  }

  get elapsedMs(): number {
    return this.#carriedMs + this.#now - this.#startedAt - this.waitedMs
  }

  get leftMs(): number {
    return this.#limitMs - this.elapsedMs
  }

  get wallMsLeft(): number {
    return this.#wallEndsAt - this.#now
  }

  get waitedMs(): number {
    return this.#waitedMs + (this.#waiting > 0 ? this.#now - this.#waitStartedAt : 0)
  }

  get isWaiting(): boolean {
    return this.#waiting > 0
  }

  get isStopped(): boolean {
    return this.#stoppedAt !== undefined
  }

  /** From now on `onSpent` is called. Synchronous code could not be interrupted and needs no timer. */
  watch(): void {
    this.#isWatched = true
    this.#setTimer()
  }

  startWait(): void {
    this.#waiting += 1
    if (this.#waiting === 1) this.#waitStartedAt = this.#now
  }

  endWait(): void {
    this.#waiting -= 1
    if (this.#waiting > 0) return
    this.#waitedMs += this.#now - this.#waitStartedAt
    this.#setTimer()
  }

  /** Counts time that has passed as a wait after all. */
  giveBack(ms: number): void {
    this.#waitedMs += ms
  }

  /** Counts time that passed before this clock was started. */
  carry(ms: number): void {
    this.#carriedMs += ms
    this.#setTimer()
  }

  /** Stops the clock for good: the timer is gone and the figures stay as they are. */
  stop(): void {
    this.#stoppedAt ??= performance.now()
    clearTimeout(this.#timer)
  }

  get #now(): number {
    return this.#stoppedAt ?? performance.now()
  }

  /** Ensures that a timer is set that is not due too late. */
  #setTimer(): void {
    // A wait may end after the clock was stopped.
    if (!this.#isWatched || this.#stoppedAt !== undefined) return
    const leftMs = this.#waiting > 0 ? this.wallMsLeft : Math.min(this.leftMs, this.wallMsLeft)
    const dueAt = performance.now() + leftMs
    if (dueAt >= this.#dueAt) return
    clearTimeout(this.#timer)
    this.#dueAt = dueAt
    this.#timer = setTimeout(() => this.#onTimer(), timerMs(Math.ceil(leftMs)))
  }

  #onTimer(): void {
    this.#dueAt = Infinity
    const { leftMs, wallMsLeft } = this
    // On a loop that was held up both may be spent: then the one that was due first counts.
    if (this.#waiting === 0 && leftMs <= 0 && leftMs <= wallMsLeft) this.#onSpent('time')
    else if (wallMsLeft <= 0) this.#onSpent('wall')
    else this.#setTimer()
  }
}

/** `deadline`: the whole stream. `idle`: silence in the middle of it. `stall`: the reader did not take it. */
export type ClockLimit = 'deadline' | 'idle' | 'stall'

export interface StreamClockLimits {
  readonly requestTimeoutMs: number
  readonly idleTimeoutMs: number
}

/** The time a sender has for one stream. The clock stands still while the reader holds the stream up: that is not the sender's fault. */
export class StreamClock {
  readonly #limits: StreamClockLimits
  readonly #onTimeout: (limit: ClockLimit) => void
  /** The timer of the sender's deadline, or of the reader's: never both. */
  #deadline: NodeJS.Timeout | undefined
  #idle: NodeJS.Timeout | undefined
  /** When the sender's time is up; while the clock stands still, how much time is left. */
  #dueAt = 0
  #leftMs = 0

  constructor(limits: StreamClockLimits, onTimeout: (limit: ClockLimit) => void) {
    this.#limits = limits
    this.#onTimeout = onTimeout
  }

  start(ms = this.#limits.requestTimeoutMs): void {
    this.#dueAt = performance.now() + ms
    this.#deadline = setTimeout(() => this.#onTimeout('deadline'), timerMs(ms))
  }

  onPiece(): void {
    if (this.#idle) this.#idle.refresh()
    else this.#idle = setTimeout(() => this.#onTimeout('idle'), timerMs(this.#limits.idleTimeoutMs))
  }

  hold(): void {
    this.stop()
    this.#leftMs = this.#dueAt - performance.now()
    this.#deadline = setTimeout(() => this.#onTimeout('stall'), timerMs(this.#limits.requestTimeoutMs))
  }

  goOn(): void {
    this.stop()
    this.start(this.#leftMs)
    this.onPiece()
  }

  stop(): void {
    clearTimeout(this.#deadline)
    clearTimeout(this.#idle)
    this.#idle = undefined
  }
}

/** Pieces of work in one turn of the loop; it also bounds what follows from them through promises. */
const maxAtOnce = 16
/** No further piece is begun in a turn after so long. */
const maxMs = 4

/**
 * Does work of one kind in batches and in order, at the end of a turn of the loop. Piece after piece takes a tenth to a fifth
 * less CPU than one piece per socket read, and turns stay short: a thousand replies that arrive together would hold up timers
 * for a third of a second. It needs no limit: there is never more work than requests under way.
 */
export class TurnBatches {
  readonly #waiting: Piece[] = []
  readonly #now: () => number
  #isDue = false

  constructor(now: () => number = () => performance.now()) {
    this.#now = now
  }

  /** Does the work soon. What it throws is an uncaught exception; the rest of the work is done all the same. */
  add(work: () => void): void {
    this.#waiting.push(new Piece(work))
    if (!this.#isDue) this.#schedule()
  }

  #schedule(): void {
    this.#isDue = true
    setImmediate(this.#onTurnEnd)
  }

  readonly #onTurnEnd = (): void => {
    const endsAt = this.#now() + maxMs
    // What this work adds comes in a later turn.
    const count = Math.min(this.#waiting.length, maxAtOnce)
    let begun = 0
    try {
      do {
        begun += 1
        this.#waiting[begun - 1]?.run()
      } while (begun < count && this.#now() < endsAt)
    } finally {
      this.#waiting.splice(0, begun)
      this.#isDue = false
      if (this.#waiting.length > 0) this.#schedule()
    }
  }
}

/** Work in the async context in which it was added: there tracers look for its request. `AsyncResource.bind` costs 5% more CPU. */
class Piece extends AsyncResource {
  readonly #work: () => void

  constructor(work: () => void) {
    super('TurnBatches')
    this.#work = work
  }

  run(): void {
    this.runInAsyncScope(this.#work)
  }
}

export class TimeSlice {
  readonly #ms: number
  #startedAt = performance.now()

  constructor(ms = 5) {
    this.#ms = ms
  }

  get isOver(): boolean {
    return performance.now() - this.#startedAt >= this.#ms
  }

  /** The same items, with a rest between them whenever it is time: for a long list that is read without waiting. */
  async *over<Item>(items: Iterable<Item>): AsyncGenerator<Item, void, void> {
    for (const item of items) {
      yield item
      if (this.isOver) await this.rest()
    }
  }

  async rest(): Promise<void> {
    await nextTurn()
    this.#startedAt = performance.now()
  }
}
