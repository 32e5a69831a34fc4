import { RingQueue } from '../../kit/index.ts'

/** As long as this, from the first reply of a turn of the loop on, replies are handled as they come. */
const shareMs = 4
/** What is left over is handled so many at a time, and the loop sees to everything else in between. */
const atOnce = 8

/**
 * Keeps turns of the loop short when many replies arrive together. Of all sockets that are ready Node reads every one in a
 * single turn; what then follows for each reply (reading it, the agent's next step, the next request) takes several times as
 * long as the read, and a thousand of them would hold up timers and everybody else for a third of a second. What is
 * put off waits in order. There are never more than requests under way, so it needs no limit of its own.
 */
export class LoopShare {
  readonly #waiting = new RingQueue<() => void>()
  readonly #now: () => number
  #turnStartedAt: number | undefined

  constructor(now: () => number = () => performance.now()) {
    this.#now = now
  }

  /** Runs the work now, or soon. It must not throw. */
  run(work: () => void): void {
    const now = this.#now()
    if (this.#turnStartedAt === undefined) {
      this.#turnStartedAt = now
      setImmediate(this.#onTurnEnd)
    }
    const isOver = now - this.#turnStartedAt > shareMs
    if (isOver || this.#waiting.size > 0) this.#waiting.push(work)
    else work()
  }

  readonly #onTurnEnd = (): void => {
    this.#turnStartedAt = undefined
    for (let count = 0; count < atOnce; count += 1) this.#waiting.shift()?.()
    if (this.#waiting.size === 0) return
    // The steps that follow from these run before the next turn begins, and count as part of it.
    this.#turnStartedAt = this.#now()
    setImmediate(this.#onTurnEnd)
  }
}

/** The one for all replies of this thread. */
export const loopShare = new LoopShare()
