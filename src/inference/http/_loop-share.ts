import { RingQueue } from '../../kit/index.ts'

/** For so long after the first reply in a turn of the loop, replies are handled as they come. */
const shareMs = 4
/** The replies that are left over are handled so many at a time, and the loop sees to everything else in between. */
const atOnce = 8

/**
 * Keeps turns of the loop short when many replies arrive together. Node reads every socket that is ready in a single turn;
 * the work for each reply (reading it, the agent's next step, the next request) takes several times as long as the read, and
 * a thousand replies would hold up timers and everything else for a third of a second. Work that is put off runs in order. It
 * needs no limit of its own, because there is never more of it than requests under way.
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
    // The steps that follow from this work run before the next turn begins, and count as part of that turn.
    this.#turnStartedAt = this.#now()
    setImmediate(this.#onTurnEnd)
  }
}

/** The share of all replies of this thread. */
export const loopShare = new LoopShare()
