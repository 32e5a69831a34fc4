import { MillraceError } from '../errors/index.ts'
import type { Backend } from '../apis/index.ts'
import type { HttpBackend, Model, PauseGate, PauseMode } from '../inference/index.ts'
import { AbortSource, type Backoff, backoffMs, settlesWithin, sleep, timerMs } from '../kit/index.ts'

/** A backend of one model. A server of several models is one backend of the fleet. */
export interface ServedBackend {
  readonly name: string
  readonly url: string
  readonly model: string
  readonly client: Model
  readonly backend: Backend
  /** Undefined of a backend in process. */
  readonly http: HttpBackend | undefined
}

export type BackendState = 'serving' | 'pausing' | 'paused' | 'resuming' | 'unreachable'

export interface BackendAnswer {
  readonly backend: string
  readonly ok: boolean
  readonly status: BackendState
  readonly version?: string
  /** What a pause did to replies in the making. */
  readonly mode?: PauseMode
  /** Why that is not what was asked for. */
  readonly note?: string
  readonly error?: string
}

export interface BackendView {
  readonly id: string
  readonly url: string
  readonly models: readonly string[]
  readonly state: BackendState
  readonly version: string | null
  readonly inFlight: number
  /** Of the pause that it is in, and how long that lasts if nobody ends it. */
  readonly epoch?: number
  readonly leaseMs?: number
  readonly error?: string
}

export interface PauseOrder {
  readonly epoch: number
  readonly mode: PauseMode
  /** When the pause ends by itself. */
  readonly ttlMs: number
}

/** A resume that has reached the engine, or failed to. */
interface Resumed {
  readonly signal: AbortSignal
  readonly wasPaused: boolean
  readonly failure: MillraceError | undefined
}

interface FleetBackendOptions {
  readonly id: string
  readonly url: string
  readonly gate: PauseGate
  /** Hears of what nobody asked for: a pause that ended by itself, an engine that does not resume. */
  readonly onAlarm: (message: string) => void
}

/** An engine that aborts its replies ends at least one of them in this time. */
const abortedMs = 500
const resumeBackoff: Backoff = { firstMs: 500, factor: 2, maxMs: 10_000 }

/**
 * One server of the fleet, and where it is in an update of its weights.
 *
 *      serving ──► pausing ──► paused ──► resuming ──► serving
 *
 * A later order replaces the one under way. Its gate opens only when the engine goes on: one that does not answer is told again and
 * again. The lease of a pause ends it if nobody does.
 */
export class FleetBackend {
  readonly id: string
  readonly url: string
  readonly gate: PauseGate
  readonly #options: FleetBackendOptions
  served: readonly ServedBackend[] = []
  #phase: 'serving' | 'pausing' | 'paused' | 'resuming' = 'serving'
  #epoch = 0
  #pausing: Promise<BackendAnswer> | undefined
  /** Versions are set one after the other. */
  #changing: Promise<unknown> = Promise.resolve()
  #work = new AbortSource()
  #lease: NodeJS.Timeout | undefined
  #leaseEndsAt = 0
  /** Why the last order failed, until one succeeds. */
  #failure: MillraceError | undefined

  constructor(options: FleetBackendOptions) {
    this.#options = options
    this.id = options.id
    this.url = options.url
    this.gate = options.gate
  }

  /** Of the last pause. */
  get epoch(): number {
    return this.#epoch
  }

  get isPaused(): boolean {
    return this.#phase !== 'serving'
  }

  get state(): BackendState {
    const isGone = this.served.length > 0 && this.served.every(({ client, backend }) => client.failureAt(backend))
    const isSilent = this.#failure?.code === 'model_connect' || this.#failure?.code === 'model_timeout'
    if (isSilent || (isGone && this.#phase === 'serving')) return 'unreachable'
    return this.#phase
  }

  view(shownUrl: string): BackendView {
    const { id, state, gate } = this
    return {
      id,
      url: shownUrl,
      models: this.served.map(({ model }) => model),
      state,
      version: this.#version ?? null,
      inFlight: gate.running,
      ...(this.isPaused && { epoch: this.#epoch }),
      ...(this.#lease && { leaseMs: Math.max(0, Math.round(this.#leaseEndsAt - performance.now())) }),
      ...(this.#failure && { error: this.#failure.rawMessage }),
    }
  }

  /** The same epoch again renews the lease, and has the same answer. */
  pause(order: PauseOrder): Promise<BackendAnswer> {
    const isRepeated = order.epoch === this.#epoch && this.#pausing !== undefined
    this.#epoch = order.epoch
    this.#setLease(order.ttlMs)
    if (isRepeated && this.#pausing) return this.#pausing
    return (this.#pausing = this.#pause(order, this.#begin()))
  }

  /** Has the engine go on. The gate stays shut until `endResume`, so that backends that resume together take calls together. */
  async beginResume(): Promise<Resumed> {
    const signal = this.#begin()
    const wasPaused = this.isPaused
    this.#pausing = undefined
    clearTimeout(this.#lease)
    this.#lease = undefined
    this.#phase = 'resuming'
    // An engine may have been paused before this process began.
    const failure = await this.#resumeEngine(signal)
    return { signal, wasPaused, failure }
  }

  endResume({ signal, wasPaused, failure }: Resumed): BackendAnswer {
    if (signal.aborted) return this.#answer(MillraceError.from(signal.reason, 'internal'))
    if (failure && wasPaused) void this.#keepResuming(signal)
    else this.#serve()
    return this.#answer(failure)
  }

  /** The engine is told the version if it has a route for that. While it changes, replies are of no known version. */
  setVersion(version: string, signal: AbortSignal): Promise<BackendAnswer> {
    const changed = this.#changing.then(() => this.#setVersion(version, signal))
    this.#changing = changed
    return changed
  }

  async #setVersion(version: string, signal: AbortSignal): Promise<BackendAnswer> {
    const { gate } = this
    const set = gate.version?.version === version ? gate.version : { version }
    const servers = this.#servers
    try {
      if (set !== gate.version) {
        await Promise.all(servers.map((server) => server.beginWeightChange()))
        gate.version = undefined
      }
      await this.#control?.setVersion(version, signal)
      gate.version = set
      for (const server of servers) server.endWeightChange(set)
      for (const { client } of this.served) client.versions.note(version)
      this.#failure = undefined
    } catch (error) {
      this.#failure = MillraceError.from(error, 'internal')
    }
    return this.#answer(this.#failure)
  }

  /** Nothing is left that was begun here. The engine stays as it is. */
  close(): void {
    clearTimeout(this.#lease)
    this.#lease = undefined
    this.#work.abort(new MillraceError('closed', 'the gateway was stopped'))
  }

  get #version(): string | undefined {
    const said = this.served.find(({ http }) => http?.weightVersion !== undefined)?.http?.weightVersion
    return this.gate.version?.version ?? said ?? this.gate.lastVersion
  }

  get #servers(): readonly HttpBackend[] {
    return this.served.flatMap(({ http }) => http ?? [])
  }

  get #control(): HttpBackend['engineControl'] | undefined {
    return this.served.find(({ http }) => http)?.http?.engineControl
  }

  #begin(): AbortSignal {
    this.#work.abort(new MillraceError('cancelled', 'a later request has replaced this one'))
    this.#work = new AbortSource()
    return this.#work.signal
  }

  async #pause(order: PauseOrder, signal: AbortSignal): Promise<BackendAnswer> {
    this.#phase = 'pausing'
    this.gate.pause()
    try {
      const done = await this.#endReplies(order, signal)
      // Now, because an engine may not come back from an update.
      await Promise.all(this.#servers.map((server) => server.findWeights()))
      signal.throwIfAborted()
      this.#failure = undefined
      this.#phase = 'paused'
      return { ...this.#answer(undefined), ...done }
    } catch (thrown) {
      const failure = MillraceError.from(thrown, 'internal')
      if (!signal.aborted) {
        // Nothing of ours reaches it, but what the engine does is not known.
        this.#failure = failure
        this.#phase = 'paused'
      }
      return this.#answer(failure)
    }
  }

  async #endReplies({ mode, ttlMs }: PauseOrder, signal: AbortSignal): Promise<Pick<BackendAnswer, 'mode' | 'note'>> {
    const { gate } = this
    const control = this.#control
    if (mode === 'abort') {
      gate.abortAll()
      await gate.idle(signal)
      await control?.pause('abort', signal)
      return { mode }
    }
    const note = mode === 'continue' ? await this.#obstacle() : undefined
    if (mode === 'finish' || note !== undefined) {
      await gate.idle(signal)
      await control?.pause('wait', signal, ttlMs)
      return { mode: 'finish', ...(note !== undefined && { note }) }
    }
    gate.expectAborts()
    try {
      await control?.pause('abort', signal)
      let running = Infinity
      while (gate.running < running) {
        running = gate.running
        await settlesWithin(gate.idle(signal), abortedMs)
      }
    } finally {
      // A request that has reached the engine after the pause is held there: it is sent again.
      gate.abortAll()
    }
    await gate.idle(signal)
    return { mode }
  }

  /** Why replies cannot go on from their partial tokens. */
  async #obstacle(): Promise<string | undefined> {
    const kind = (await this.#control?.kind()) ?? 'none'
    if (kind === 'none') return 'the engine has no route that aborts its replies: they end first'
    if (this.gate.canContinue) return undefined
    return 'replies of models without exact tokens, or with a grammar or a penalty, cannot go on: all replies end first'
  }

  async #resumeEngine(signal: AbortSignal): Promise<MillraceError | undefined> {
    try {
      await this.#control?.resume(signal)
      this.#failure = undefined
      return undefined
    } catch (thrown) {
      const failure = MillraceError.from(thrown, 'internal')
      if (!signal.aborted) this.#failure = failure
      return failure
    }
  }

  async #keepResuming(signal: AbortSignal): Promise<void> {
    this.#options.onAlarm(
      `backend ${this.id} does not resume: ${this.#failure?.rawMessage ?? ''} It is told again until it does.`,
    )
    for (let tries = 1; !signal.aborted; tries += 1) {
      try {
        await sleep(backoffMs(resumeBackoff, tries, Math.random), signal)
      } catch {
        return
      }
      if (!(await this.#resumeEngine(signal)) && !signal.aborted) {
        this.#options.onAlarm(`backend ${this.id} has resumed at last`)
        this.#serve()
        return
      }
    }
  }

  #serve(): void {
    this.#phase = 'serving'
    this.gate.resume()
  }

  #setLease(ttlMs: number): void {
    clearTimeout(this.#lease)
    this.#leaseEndsAt = performance.now() + ttlMs
    this.#lease = setTimeout(() => void this.#onLeaseEnd(ttlMs), timerMs(ttlMs))
  }

  async #onLeaseEnd(ttlMs: number): Promise<void> {
    const seconds = (ttlMs / 1000).toFixed(1)
    this.#options.onAlarm(
      `the pause of backend ${this.id} (epoch ${this.#epoch}) was not ended within ${seconds} s (ttlMs): it resumes by itself`,
    )
    this.endResume(await this.beginResume())
  }

  #answer(failure: MillraceError | undefined): BackendAnswer {
    const version = this.#version
    return {
      backend: this.id,
      ok: failure === undefined,
      status: this.state,
      ...(version !== undefined && { version }),
      ...(failure && { error: failure.rawMessage }),
    }
  }
}
