import { type AbortListener, timerMs, offAbort, onAbort, Resource, closeTogether } from '../../../kit/index.ts'
import { HeldEvents, type ServerEventListener } from './_held-events.ts'
import { serverDefaults } from '../config/server-defaults.ts'
import type { HeldSession, KeptSession, SessionSource, SessionUse } from './_session-source.ts'
import type { ServerGate } from '../session/server-gate.ts'
import type { PoolOptions } from '../config/server-config.ts'

export interface ProcessPoolOptions extends PoolOptions {
  readonly makeSession: (onEvent: ServerEventListener) => KeptSession
  /** Takes the events of processes that no rollout holds. */
  readonly onEvent: ServerEventListener
  readonly gate: ServerGate
  /** A process that no rollout took for this long is ended; the next rollout starts one. */
  readonly idleMs?: number | undefined
  /** A process older than this serves no further rollout. */
  readonly maxLifetimeMs?: number | undefined
  readonly onRecycle: (why: 'idle' | 'lifetime' | 'uses') => void
}

interface PooledSession {
  readonly session: KeptSession
  readonly events: HeldEvents
  readonly startedAt: number
  uses: number
  /** Set while the process is ready and may become idle for too long. */
  idleTimer?: NodeJS.Timeout | undefined
}

/** A rollout that waits for a process. */
interface WaitingRollout extends AbortListener {
  readonly serve: (pooled: PooledSession) => void
  readonly fail: (error: unknown) => void
}

/**
 * A process per rollout, some of them started ahead. Rollouts beyond `max` wait in the order in which they came, without a limit
 * on their number; a process counts until it is gone, so that there are never more than `max` of them. Giving a process back does
 * not wait for its end, which takes some servers a good while: the pool ends it in the background, and starts the next meanwhile.
 *
 * A process that fails to start fails the rollout that has waited longest, and nobody if none waits.
 */
export class ProcessPool extends Resource implements SessionSource {
  readonly #options: ProcessPoolOptions
  readonly #warm: number
  readonly #max: number
  readonly #maxUses: number
  /** Every process that is not known to be gone. */
  readonly #sessions = new Set<KeptSession>()
  readonly #ready: PooledSession[] = []
  // A Set iterates in insertion order, so the first is the one that has waited longest.
  readonly #waiting = new Set<WaitingRollout>()
  #starting = 0
  /** How many processes to have ready: none after a start failed or nobody came for one, until the next rollout asks. */
  #ahead = 0
  #refill: NodeJS.Immediate | undefined
  /** The first error of a process that would not end: reported by `close`, since nobody waits for it before. */
  #closeFailure: { readonly error: unknown } | undefined

  constructor(options: ProcessPoolOptions) {
    super()
    this.#options = options
    const defaults = serverDefaults.pool
    this.#max = options.max ?? defaults.max
    this.#warm = Math.min(options.warm ?? defaults.warm, this.#max)
    this.#maxUses = options.maxUses ?? defaults.maxUses
  }

  async warm(): Promise<void> {
    this.#ahead = this.#warm
    await this.#fill()
  }

  take(signal: AbortSignal, onEvent?: ServerEventListener): Promise<HeldSession> {
    if (this.isClosed) return Promise.reject(this.closedSignal.reason)
    if (signal.aborted) return Promise.reject(signal.reason)
    this.#ahead = this.#warm
    const pooled = this.#takeReady()
    if (pooled) {
      this.#fillSoon()
      return Promise.resolve(this.#lend(pooled, onEvent))
    }
    return new Promise((resolve, reject) => {
      const leave = (): void => {
        offAbort(signal, waiting)
        this.#waiting.delete(waiting)
      }
      const waiting: WaitingRollout = {
        serve: (served) => {
          leave()
          resolve(this.#lend(served, onEvent))
        },
        fail: (error) => {
          leave()
          reject(error)
        },
        handleEvent: () => waiting.fail(signal.reason),
      }
      onAbort(signal, waiting)
      this.#waiting.add(waiting)
      void this.#fill()
    })
  }

  /** A ready process that is still alive. */
  #takeReady(): PooledSession | undefined {
    for (;;) {
      const pooled = this.#ready.shift()
      if (!pooled) return undefined
      clearTimeout(pooled.idleTimer)
      if (this.#isTooOld(pooled)) this.#recycle(pooled, 'lifetime')
      // A process that died while it waited would count as restarted, though no rollout had told it anything.
      else if (pooled.session.isOpen) return pooled
      else this.#retire(pooled.session)
    }
  }

  #lend(pooled: PooledSession, onEvent: ServerEventListener | undefined): HeldSession {
    pooled.session.beginHold()
    pooled.events.holder = onEvent
    return { session: pooled.session, giveBack: (use) => this.#takeBack(pooled, use) }
  }

  #takeBack(pooled: PooledSession, use: SessionUse): void {
    pooled.events.holder = undefined
    if (this.isClosed) return
    // A process that was told nothing is as good as new.
    if (use !== 'unused') pooled.uses += 1
    if (pooled.uses >= this.#maxUses) this.#recycle(pooled, 'uses')
    else if (this.#isTooOld(pooled)) this.#recycle(pooled, 'lifetime')
    // The next rollout would see calls that still run there.
    else if (use === 'busy' || !pooled.session.isOpen) this.#retire(pooled.session)
    else this.#put(pooled)
    this.#fillSoon()
  }

  #isTooOld({ startedAt }: PooledSession): boolean {
    return performance.now() - startedAt > (this.#options.maxLifetimeMs ?? Number.POSITIVE_INFINITY)
  }

  /** Starts as many processes as are waited for or wanted ahead, as far as there is room; ends when they run. Never rejects. */
  async #fill(): Promise<void> {
    if (this.isClosed) return
    const wanted = this.#waiting.size + this.#ahead - this.#ready.length - this.#starting
    const room = this.#max - this.#sessions.size
    await Promise.all(Array.from({ length: Math.max(0, Math.min(wanted, room)) }, () => this.#start()))
  }

  /** Starting a process holds up the loop for some milliseconds: the caller that took or gave one back goes on first. */
  #fillSoon(): void {
    this.#refill ??= setImmediate(() => {
      this.#refill = undefined
      void this.#fill()
    })
  }

  /** Starts one process. Never rejects. */
  async #start(): Promise<void> {
    const events = new HeldEvents(this.#options.onEvent)
    const session = this.#options.makeSession(events.tell)
    this.#sessions.add(session)
    this.#starting += 1
    let failure: { readonly error: unknown } | undefined
    try {
      await this.#options.gate.open(() => session.open(), { signal: this.closedSignal })
    } catch (error) {
      failure = { error }
    }
    this.#starting -= 1
    if (this.isClosed) return
    if (!failure) {
      this.#put({ session, events, startedAt: performance.now(), uses: 0 })
      return
    }
    this.#ahead = 0
    const [first] = this.#waiting
    first?.fail(failure.error)
    this.#retire(session)
  }

  #put(pooled: PooledSession): void {
    const [first] = this.#waiting
    if (first) {
      first.serve(pooled)
      return
    }
    // The caller that asked for it has left. Reusable processes are worth keeping, as they are meant to be used again.
    if (this.#ready.length >= (this.#maxUses > 1 ? this.#max : this.#warm)) {
      this.#retire(pooled.session)
      return
    }
    this.#ready.push(pooled)
    const { idleMs } = this.#options
    if (idleMs === undefined) return
    pooled.idleTimer = setTimeout(() => this.#endIdle(pooled), timerMs(idleMs)).unref()
  }

  #endIdle(pooled: PooledSession): void {
    const at = this.#ready.indexOf(pooled)
    if (at === -1) return
    this.#ready.splice(at, 1)
    this.#ahead = 0
    this.#recycle(pooled, 'idle')
  }

  #recycle(pooled: PooledSession, why: 'idle' | 'lifetime' | 'uses'): void {
    this.#options.onRecycle(why)
    this.#retire(pooled.session)
  }

  /** Ends a process in the background. Its place is free once it is gone. */
  #retire(session: KeptSession): void {
    session
      .close()
      .catch((error: unknown) => {
        this.#closeFailure ??= { error }
      })
      .finally(() => {
        this.#sessions.delete(session)
        void this.#fill()
      })
  }

  protected override async onClose(): Promise<void> {
    for (const waiting of this.#waiting) waiting.fail(this.closedSignal.reason)
    clearImmediate(this.#refill)
    for (const { idleTimer } of this.#ready) clearTimeout(idleTimer)
    this.#ready.length = 0
    await closeTogether(this.#sessions)
    if (this.#closeFailure) throw this.#closeFailure.error
  }
}
