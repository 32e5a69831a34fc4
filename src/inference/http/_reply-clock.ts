import { timerMs } from '../../kit/index.ts'

/** `deadline`: the whole request. `idle`: silence in a stream. `stall`: the sink did not take the reply. */
export type ClockLimit = 'deadline' | 'idle' | 'stall'

export interface ReplyClockOwner {
  onTimeUp(limit: ClockLimit): void
}

export interface ReplyClockLimits {
  readonly requestTimeoutMs: number
  readonly idleTimeoutMs: number
}

/**
 * The time one server has for one reply. The clock stands still while a sink holds the reply up: that is no fault of the
 * server's and must not count as one. So that nothing is held for ever, a sink may hold it up for `requestTimeoutMs` at a
 * stretch.
 */
export class ReplyClock {
  readonly #owner: ReplyClockOwner
  readonly #limits: ReplyClockLimits
  /** The timer of the server's deadline, or of the sink's: never both. */
  #deadline: NodeJS.Timeout | undefined
  #idle: NodeJS.Timeout | undefined
  /** When the server's time is up; while the clock stands still, how much time is left. */
  #dueAt = 0
  #leftMs = 0

  constructor(owner: ReplyClockOwner, limits: ReplyClockLimits) {
    this.#owner = owner
    this.#limits = limits
  }

  start(): void {
    this.#run(this.#limits.requestTimeoutMs)
  }

  /** A piece of a stream came. */
  onPiece(): void {
    if (this.#idle) this.#idle.refresh()
    else this.#idle = setTimeout(onIdle, timerMs(this.#limits.idleTimeoutMs), this.#owner)
  }

  hold(): void {
    this.stop()
    this.#leftMs = this.#dueAt - performance.now()
    this.#deadline = setTimeout(onStall, timerMs(this.#limits.requestTimeoutMs), this.#owner)
  }

  goOn(): void {
    this.stop()
    this.#run(this.#leftMs)
    this.onPiece()
  }

  stop(): void {
    clearTimeout(this.#deadline)
    clearTimeout(this.#idle)
    this.#idle = undefined
  }

  #run(ms: number): void {
    this.#dueAt = performance.now() + ms
    this.#deadline = setTimeout(onDeadline, timerMs(ms), this.#owner)
  }
}

// These functions take the owner as an argument, because a closure for each reply would cost more.
function onDeadline(owner: ReplyClockOwner): void {
  owner.onTimeUp('deadline')
}

function onIdle(owner: ReplyClockOwner): void {
  owner.onTimeUp('idle')
}

function onStall(owner: ReplyClockOwner): void {
  owner.onTimeUp('stall')
}
