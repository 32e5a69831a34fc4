import { withAbort, Resource, timerMs } from '../../../kit/index.ts'
import {
  SessionEvents,
  type SessionLease,
  type SharableSession,
  type OwnSessionOptions,
  type ServerEventListener,
  type SessionSource,
  type SessionUse,
  OwnedSessions,
} from './session-source.ts'
import { type PoolOptions, serverDefaults } from '../config/server-config.ts'

export interface ProcessPoolOptions extends PoolOptions, OwnSessionOptions {
  /** A process that no rollout took for this long is ended; the next rollout starts one. */
  readonly idleMs?: number | undefined
  /** A process older than this serves no further rollout. */
  readonly maxLifetimeMs?: number | undefined
  readonly onRecycle: (why: 'idle' | 'lifetime' | 'uses') => void
}

interface PooledSession {
  readonly session: SharableSession
  readonly events: SessionEvents
  readonly startedAt: number
  uses: number
  /** Set while the process is ready and may become idle for too long. */
  idleTimer?: NodeJS.Timeout | undefined
}

type WaitingRollout = PromiseWithResolvers<PooledSession>

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
  readonly #sessions = new OwnedSessions()
  readonly #ready: PooledSession[] = []
  // A Set iterates in insertion order, so the first is the one that has waited longest.
  readonly #waiting = new Set<WaitingRollout>()
  #starting = 0
  /** How many processes to have ready: none after a start failed or nobody came for one, until the next rollout asks. */
  #ahead = 0
  #refill: NodeJS.Immediate | undefined

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

  async take(signal: AbortSignal, onEvent?: ServerEventListener): Promise<SessionLease> {
    this.throwIfClosed()
    signal.throwIfAborted()
    this.#ahead = this.#warm
    const ready = this.#takeReady()
    if (ready) {
      this.#fillSoon()
      return this.#lend(ready, onEvent)
    }
    const waiting: WaitingRollout = Promise.withResolvers()
    this.#waiting.add(waiting)
    void this.#fill()
    try {
      return this.#lend(await withAbort(waiting.promise, signal), onEvent)
    } catch (error) {
      // If it is gone from the list, it may have got a process just when its signal aborted.
      const isServed = !this.#waiting.delete(waiting)
      if (isServed) void waiting.promise.then((served) => this.#takeBack(served, 'unused')).catch(() => {})
      throw error
    }
  }

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

  #lend(pooled: PooledSession, onEvent: ServerEventListener | undefined): SessionLease {
    pooled.session.beginLease()
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
    const events = new SessionEvents(this.#options.onEvent)
    const session = this.#options.makeSession(events.tell)
    this.#sessions.add(session)
    this.#starting += 1
    let failure: { readonly error: unknown } | undefined
    try {
      await this.#options.breaker.open(() => session.open(), { signal: this.closedSignal })
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
    this.#firstWaiting()?.reject(failure.error)
    this.#retire(session)
  }

  #firstWaiting(): WaitingRollout | undefined {
    const [first] = this.#waiting
    if (first) this.#waiting.delete(first)
    return first
  }

  #put(pooled: PooledSession): void {
    const first = this.#firstWaiting()
    if (first) {
      first.resolve(pooled)
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
  #retire(session: SharableSession): void {
    void this.#sessions.end(session).then(() => this.#fill())
  }

  protected override async onClose(): Promise<void> {
    for (const waiting of this.#waiting) waiting.reject(this.closedSignal.reason)
    this.#waiting.clear()
    clearImmediate(this.#refill)
    for (const { idleTimer } of this.#ready) clearTimeout(idleTimer)
    this.#ready.length = 0
    await this.#sessions.close()
  }
}
