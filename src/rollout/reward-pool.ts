import { availableParallelism } from 'node:os'
import { MillraceError } from '../errors/index.ts'
import { AbortScope, raced, RecentWaits, Resource, type StopClock } from '../kit/index.ts'
import type { EnvironmentModule, HeavyInput } from './reward-pool-messages.ts'
import { RewardThread, type RewardAnswer } from './reward-pool-thread.ts'

export interface HeavyJob {
  readonly component: string
  readonly input: HeavyInput
  readonly timeoutMs: number
  /** The clock of the reward as a whole. It stands still while this job waits for a thread. */
  readonly clock: StopClock
  readonly signal: AbortSignal
}

/** What the pool is like now: a queue that waits long says that there are too few threads, or too little machine. */
export interface RewardPoolStatus {
  readonly size: number
  readonly busy: number
  readonly queued: number
  /** How long the last few hundred jobs waited for a thread. */
  readonly waitP99Ms: number
}

interface RewardPoolOptions extends EnvironmentModule {
  /** As many as there are processors if not given. */
  readonly maxThreads?: number | undefined
}

/** A waiting job holds its rollout's place, so this many means that something is wrong with the limits. */
const maxWaiting = 100_000
/** A thread beyond the first that was idle for this long is ended. */
const maxIdleMs = 30_000

/**
 * Threads that run heavy rewards, one at a time each. The first is started at once, so that it is warm when it is needed;
 * further ones as soon as a job has to wait. A job that is not done in time is ended with its thread, which is replaced.
 */
export class RewardPool extends Resource {
  readonly #module: EnvironmentModule
  readonly #maxThreads: number
  readonly #waits = new RecentWaits()
  readonly #starting = new Set<RewardThread>()
  /** Idle threads, each with the timer that ends it. */
  readonly #idle = new Map<RewardThread, NodeJS.Timeout>()
  readonly #busy = new Set<RewardThread>()
  /** Threads that were told to end. One inside a native call stays here until that returns. */
  readonly #ending = new Set<RewardThread>()
  // A Set iterates in insertion order, so the first is the one that has waited longest.
  readonly #waiting = new Set<WaitingJob>()

  constructor({ specifier, options, maxThreads = availableParallelism() }: RewardPoolOptions) {
    super()
    this.#module = { specifier, options }
    this.#maxThreads = maxThreads
    this.#grow()
  }

  status(): RewardPoolStatus {
    return {
      size: this.#size,
      busy: this.#busy.size,
      queued: this.#waiting.size,
      waitP99Ms: this.#waits.p99Ms,
    }
  }

  /** Throws `reward_failed` if the reward throws, dies or takes too long; the signal's reason if that comes first. */
  async score(job: HeavyJob): Promise<number | boolean> {
    this.throwIfClosed()
    const { clock, signal } = job
    const startedAt = performance.now()
    clock.startWait()
    let thread: RewardThread
    try {
      thread = await this.#take(signal)
    } finally {
      clock.endWait()
      this.#waits.add(performance.now() - startedAt)
    }
    const answer = await this.#ask(thread, job)
    if (answer.kind === 'scored') return answer.score
    throw MillraceError.fromWire(answer.error)
  }

  protected async onClose(): Promise<void> {
    for (const { fail } of this.#waiting) fail(this.closedSignal.reason)
    for (const timer of this.#idle.values()) clearTimeout(timer)
    const threads = [...this.#starting, ...this.#idle.keys(), ...this.#busy, ...this.#ending]
    await Promise.all(threads.map((thread) => thread.end()))
  }

  async #ask(thread: RewardThread, { component, input, timeoutMs, signal }: HeavyJob): Promise<RewardAnswer> {
    using deadline = new AbortScope(signal, timeoutMs, () => late(timeoutMs))
    let asked: Promise<RewardAnswer>
    try {
      // The wait may have ended together with the rollout.
      signal.throwIfAborted()
      asked = thread.ask({ component, input })
    } catch (error) {
      this.#offer(thread)
      throw signal.aborted ? error : uncloneable(error)
    }
    try {
      const answer = await raced(asked, deadline.signal)
      this.#offer(thread)
      return answer
    } catch (error) {
      const isLate = error === deadline.signal.reason && !signal.aborted
      const place = isLate ? await thread.blockedBy(signal) : undefined
      this.#discard(thread)
      throw place === undefined ? error : late(timeoutMs, place)
    }
  }

  #take(signal: AbortSignal): Promise<RewardThread> {
    // The thread used last: if there are too many, the others stay idle and are ended.
    const thread = [...this.#idle.keys()].at(-1)
    if (thread) {
      clearTimeout(this.#idle.get(thread))
      this.#idle.delete(thread)
      this.#busy.add(thread)
      return Promise.resolve(thread)
    }
    if (this.#waiting.size >= maxWaiting) {
      throw new MillraceError(
        'overloaded',
        `more than ${maxWaiting} heavy rewards wait already; lower --concurrency (concurrency)`,
      )
    }
    return new Promise((resolve, reject) => {
      const leave = (): void => {
        this.#waiting.delete(waiting)
        signal.removeEventListener('abort', onAbort)
      }
      const onAbort = (): void => waiting.fail(signal.reason)
      const waiting: WaitingJob = {
        grant: (granted) => {
          leave()
          resolve(granted)
        },
        fail: (error) => {
          leave()
          reject(error)
        },
      }
      signal.addEventListener('abort', onAbort, { once: true })
      this.#waiting.add(waiting)
      this.#grow()
    })
  }

  /**
   * Gives the thread to the job that has waited longest; without one the thread is idle. A thread that died meanwhile is not in
   * `#busy`.
   */
  #offer(thread: RewardThread): void {
    if (!this.#busy.delete(thread) || this.isClosed) return
    const [first] = this.#waiting
    if (first) {
      this.#busy.add(thread)
      first.grant(thread)
    } else {
      this.#idle.set(thread, setTimeout(() => this.#onIdle(thread), maxIdleMs).unref())
    }
  }

  /** The last thread stays warm. */
  #onIdle(thread: RewardThread): void {
    if (this.#size > 1) this.#discard(thread)
  }

  #discard(thread: RewardThread): void {
    // A thread that died by itself is in no set any more.
    if (this.#busy.delete(thread) || this.#idle.delete(thread)) this.#end(thread)
    this.#replace()
  }

  #end(thread: RewardThread): void {
    this.#ending.add(thread)
    void thread.end()
  }

  get #size(): number {
    return this.#starting.size + this.#idle.size + this.#busy.size
  }

  #replace(): void {
    if (this.#size === 0 || this.#waiting.size > this.#starting.size) this.#grow()
  }

  #grow(): void {
    const size = this.#size
    // Ending threads count too, or rewards that sit in native calls could gather threads without end.
    if (this.isClosed || size >= this.#maxThreads || size + this.#ending.size >= 2 * this.#maxThreads) return
    const thread = new RewardThread(this.#module)
    this.#starting.add(thread)
    thread.ready.then(
      () => {
        if (!this.#starting.delete(thread)) return
        this.#busy.add(thread)
        this.#offer(thread)
      },
      (error: unknown) => this.#onStartFailed(thread, error),
    )
    void thread.exited.then(() => this.#onExit(thread))
  }

  /** The waiting jobs fail, as another thread would not start either: the next job tries again. */
  #onStartFailed(thread: RewardThread, error: unknown): void {
    // What the module had opened before it failed could keep the thread alive for ever.
    if (this.#starting.delete(thread)) this.#end(thread)
    if (this.#size > 0) return
    for (const { fail } of this.#waiting) fail(error)
  }

  #onExit(thread: RewardThread): void {
    clearTimeout(this.#idle.get(thread))
    for (const state of [this.#starting, this.#idle, this.#busy, this.#ending]) state.delete(thread)
    if (this.#waiting.size > 0) this.#replace()
  }
}

/** A job that waits for a thread. */
interface WaitingJob {
  readonly grant: (thread: RewardThread) => void
  readonly fail: (error: unknown) => void
}

function late(timeoutMs: number, place?: string): MillraceError {
  const where = place === undefined ? '' : ` in ${place}`
  return new MillraceError(
    'reward_failed',
    `it took longer than its ${timeoutMs} ms and was stopped${where}; heavy(…, { timeoutMs }) gives it more`,
    { data: { timeoutMs, ...(place !== undefined && { blockedBy: place }) } },
  )
}

function uncloneable(error: unknown): MillraceError {
  const { rawMessage } = MillraceError.from(error, 'reward_failed')
  return new MillraceError(
    'reward_failed',
    `it is heavy, and what it looks at cannot go to another thread: ${rawMessage}; tasks must be plain values`,
    { cause: error },
  )
}
