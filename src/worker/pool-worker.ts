import { MillraceError } from '../errors/index.ts'
import { within } from '../kit/index.ts'
import type { ModelStatus } from '../inference/index.ts'
import type { OffloadStatus, WorkerStatus } from '../rollout/index.ts'
import type { MetricsDelta } from '../telemetry/index.ts'
import type { ToolServerStatus } from '../tools/index.ts'
import { UnansweredCalls, type CallKey } from './_unanswered-calls.ts'
import { Silence } from './_silence.ts'
import { nameBlockedFunction } from './blocked-function.ts'
import { BlockedLoopWatch, type FoundBlock } from './blocked-loop-watch.ts'
import { strayErrors } from './stray-errors.ts'
import type { Supervision } from './supervision.ts'
import type { ChannelOptions, OpenChannel, WorkerChannel } from './worker-channel.ts'
import type { WorkerResult, FromWorker, LastWords, WorkerRequest, WorkerReport } from './worker-messages.ts'

export interface Call {
  readonly key: CallKey
  /** The task of a rollout: rollouts of one task run together if possible. */
  readonly task?: number
  readonly signal: AbortSignal
}

/** How a worker died. */
export interface WorkerDeath {
  readonly error: MillraceError
  /** The calls it was carrying out. */
  readonly calls: readonly CallKey[]
  /** Calls that it was told to end and had not ended: nobody waits for them, but one of them may have killed it. */
  readonly abandoned: readonly CallKey[]
  /** The call whose code ended the worker, if the worker could say so. */
  readonly culprit?: CallKey
  /** Whether we ended the worker, for reasons that have nothing to do with what it ran. */
  readonly isBlameless: boolean
}

export interface PoolWorkerOptions extends Omit<ChannelOptions, 'onMessage' | 'heap'> {
  readonly restarts: number
  readonly open: OpenChannel
  readonly supervision: Supervision
  /** Called with what holds up the worker's loop. */
  readonly onBlocked: (blocked: FoundBlock) => void
  /** Called with what the worker counted since its last report. */
  readonly onMetrics: (delta: MetricsDelta) => void
  /** Called when the worker may have stopped taking work, or resumed; `ready` tells when it begins. */
  readonly onChange: () => void
  /** Called when the worker died after it had been ready, before the callers whose calls are lost go on. */
  readonly onDeath: (worker: PoolWorker, death: WorkerDeath) => void
}

/** Four missed beats: something holds up the worker's loop. */
const blockedAfterMs = 1_000
/** Longer than a teardown may take once its call was told to end. */
const abortGraceMs = 10_000
/** Time for closing connections and writing the last of the journal. */
const closeGraceMs = 5_000
/** Time for the worker to be gone: a thread inside a system call cannot be ended, not even from outside. */
const killGraceMs = 10_000

/**
 * One worker from its start to its end; its replacement is another object. That is the fence: what a worker says after
 * it was given up is not heard, and what it had written belongs to attempts that nobody continues.
 *
 * At most one call per admitted rollout is pending; the scheduler's concurrency is the bound. There are as many abandoned
 * calls as the worker still carries out.
 */
export class PoolWorker {
  readonly id: number
  readonly #options: PoolWorkerOptions
  readonly #channel: WorkerChannel
  readonly #ready = Promise.withResolvers<void>()
  readonly #calls = new UnansweredCalls()
  readonly #silence: Silence
  readonly #exited: Promise<void>
  #phase: 'starting' | 'ready' | 'draining' | 'closing' | 'gone' = 'starting'
  #death: MillraceError | undefined
  #lastCall = 0
  #ageMs = 0
  #report: WorkerReport | undefined
  #lastWords: LastWords | undefined
  #watch: BlockedLoopWatch | undefined
  #blockedBy: string | undefined
  #isStartGivenUp = false
  /** How many tool servers the worker was told were open. */
  #toldServers = 0

  constructor(options: PoolWorkerOptions) {
    const { id, open, supervision, start, journal, limits } = options
    this.id = id
    this.#options = options
    this.#silence = new Silence(supervision.silentAfterMs)
    this.#channel = open({ id, start, journal, limits, heap: supervision.heap, onMessage: this.#onMessage })
    this.#exited = this.#channel.exited.then((how) => this.#onExit(how))
    this.#ready.promise.catch(() => {})
  }

  /** Resolves when the worker takes work; rejects with why it never will. */
  get ready(): Promise<void> {
    return this.#ready.promise
  }

  get takesWork(): boolean {
    return this.#phase === 'ready' && !this.#silence.isLong
  }

  get isGone(): boolean {
    return this.#phase === 'gone'
  }

  /** The error that the calls were rejected with when the worker died. */
  get death(): MillraceError | undefined {
    return this.#death
  }

  /** Resolves when the thread or process is really gone. */
  get exited(): Promise<void> {
    return this.#exited
  }

  get load(): number {
    return this.#calls.size
  }

  get lagMs(): number {
    return this.#report?.lag.p99Ms ?? 0
  }

  get models(): readonly ModelStatus[] {
    return this.#report?.models ?? []
  }

  get offload(): readonly OffloadStatus[] {
    return this.#report?.offload ?? []
  }

  get servers(): readonly ToolServerStatus[] {
    return this.#report?.servers ?? []
  }

  /** Tells the worker which tool servers were open on any worker, if that is new. They are never fewer than before. */
  tellOpened(servers: ReadonlySet<string>): void {
    if (this.#toldServers >= servers.size || (this.#phase !== 'ready' && this.#phase !== 'draining')) return
    this.#toldServers = servers.size
    this.#channel.post({ kind: 'servers-opened', servers: [...servers] })
  }

  /** How many workers share the machine, as this one was told at its start. */
  get peers(): number {
    return this.#options.start.workers
  }

  /** Whether the worker has grown too large or too old to go on. */
  get isWorn(): boolean {
    const { maxMemoryBytes, maxAgeMs } = this.#options.supervision
    return this.#phase === 'ready' && ((this.#report?.memoryBytes ?? 0) > maxMemoryBytes || this.#ageMs > maxAgeMs)
  }

  worksOn(task: number): boolean {
    return this.#calls.hasTask(task)
  }

  status(): WorkerStatus {
    const phase = this.#phase === 'closing' ? 'draining' : this.#phase
    const blockedBy = this.#blockedBy
    return {
      id: this.id,
      kind: this.#channel.kind,
      state: phase === 'ready' && this.#silence.isLong ? 'silent' : phase,
      running: this.load,
      lag: this.#report?.lag ?? { p99Ms: 0, maxMs: 0, meanMs: 0, utilization: 0 },
      memoryBytes: this.#report?.memoryBytes ?? 0,
      restarts: this.#options.restarts,
      ...(blockedBy !== undefined && { blockedBy }),
    }
  }

  /** Rejects with `death` if the worker dies, and with the signal's reason if the work does not end when told to. */
  ask<Value extends WorkerResult>(request: WorkerRequest, { key, task, signal }: Call): Promise<Value> {
    if (this.#death) return Promise.reject(this.#death)
    if (this.#phase !== 'ready' && this.#phase !== 'draining') return Promise.reject(closedError())
    const call = (this.#lastCall += 1)
    let patience: NodeJS.Timeout | undefined
    const onAbort = (): void => {
      const reason = MillraceError.from(signal.reason, 'cancelled').toWire()
      this.#channel.post({ kind: 'abort', call, reason })
      // Code that blocks hears no abort, and the caller need not wait until the worker is given up.
      const graceMs = this.#silence.isLong ? 0 : abortGraceMs
      patience = setTimeout(() => this.#calls.abandon(call, signal.reason), graceMs)
    }
    return new Promise<Value>((resolve, reject) => {
      this.#post(request, call)
      // Messages are not typed by the request they answer; the call's number ties the two together.
      this.#calls.add(call, { key, task, resolve: resolve as (value: WorkerResult) => void, reject })
      if (signal.aborted) onAbort()
      else signal.addEventListener('abort', onAbort, { once: true })
    }).finally(() => {
      clearTimeout(patience)
      signal.removeEventListener('abort', onAbort)
    })
  }

  /** Counts time that has passed, and ends a worker that starts for too long or is silent for too long. */
  tick(elapsedMs: number): void {
    if (this.#phase === 'gone') return
    const { replaceAfterMs, startTimeoutMs } = this.#options.supervision
    this.#ageMs += elapsedMs
    if (this.#phase === 'starting') {
      if (this.#ageMs > startTimeoutMs && !this.#isStartGivenUp) void this.#giveUpStart()
      return
    }
    if (this.#silence.tick(elapsedMs)) this.#options.onChange()
    if (this.#silence.ms < replaceAfterMs) return
    const what = this.#blockedBy === undefined ? '' : ` by ${this.#blockedBy}`
    this.#kill(`it was blocked for ${Math.round(this.#silence.ms)} ms${what}`)
  }

  /** Takes no new calls, finishes those it runs, within their time, and ends. */
  async retire(): Promise<void> {
    if (this.#phase === 'ready') {
      this.#phase = 'draining'
      this.#options.onChange()
      await this.#calls.empty(this.#options.supervision.retireTimeoutMs)
      if (this.load > 0) this.#die('it was replaced, and what it ran did not end in the time it then has', true)
    }
    await this.close()
  }

  /** Ends the worker, in good order if it listens; the calls it runs are given up. */
  async close(): Promise<void> {
    if (this.#phase === 'starting' || this.#phase === 'gone' || this.#silence.isLong) this.#channel.kill()
    else this.#channel.post({ kind: 'close' })
    this.#watch?.[Symbol.dispose]()
    if (this.#phase !== 'gone') this.#phase = 'closing'
    const closed = closedError()
    this.#ready.reject(closed)
    this.#calls.rejectAll(closed)
    if (await within(this.#exited, closeGraceMs)) return
    this.#channel.kill()
    await within(this.#exited, killGraceMs)
  }

  readonly #onMessage = (message: FromWorker): void => {
    if (this.#phase === 'gone') return
    this.#blockedBy = undefined
    this.#watch?.beat()
    if (this.#silence.end()) this.#options.onChange()
    switch (message.kind) {
      case 'ready':
        if (this.#phase === 'starting') this.#phase = 'ready'
        this.#watch = new BlockedLoopWatch({
          target: this.#channel.target,
          thresholdMs: blockedAfterMs,
          onBlocked: this.#onBlocked,
        })
        this.#ready.resolve()
        return
      case 'start-failed':
        this.#ready.reject(MillraceError.fromWire(message.error))
        return
      case 'status':
        this.#report = message
        if (message.metrics) this.#options.onMetrics(message.metrics)
        return
      case 'stray-error':
        strayErrors.publish(message.error)
        return
      case 'last-words':
        this.#lastWords = message
        return
      case 'done':
        this.#calls.resolve(message.call, message.value)
        return
      case 'failed':
        this.#calls.reject(message.call, MillraceError.fromWire(message.error))
        return
    }
  }

  readonly #onBlocked = (blocked: FoundBlock): void => {
    this.#blockedBy = blocked.blockedBy
    this.#options.onBlocked(blocked)
  }

  #post(request: WorkerRequest, call: number): void {
    try {
      this.#channel.post({ ...request, call })
    } catch (error) {
      throw new MillraceError(
        'env_invalid',
        `a task cannot be sent to a worker: ${MillraceError.from(error, 'internal').rawMessage}. Let its schema give plain values, or run without workers.`,
        { cause: error },
      )
    }
  }

  #onExit(how: string): void {
    this.#watch?.[Symbol.dispose]()
    if (this.#phase === 'closing') {
      this.#phase = 'gone'
      this.#calls.rejectAll(closedError())
      this.#options.onChange()
    } else {
      const thrown = this.#lastWords?.error
      const place = thrown?.place === undefined ? '' : ` (at ${thrown.place})`
      this.#die(thrown ? `${thrown.message}${place}` : how)
    }
  }

  /** Ends a worker that does not get ready, and says what it is stuck in; if that cannot be told, which module it loads. */
  async #giveUpStart(): Promise<void> {
    this.#isStartGivenUp = true
    const { start, supervision } = this.#options
    const blockedBy = await nameBlockedFunction(this.#channel.target, new AbortController().signal)
    if (this.#phase !== 'starting') return
    const where = blockedBy === undefined ? `see whether ${start.specifier} comes to its end` : `it is in ${blockedBy}`
    this.#kill(`it was not ready after ${supervision.startTimeoutMs} ms: ${where}`)
  }

  #kill(why: string): void {
    this.#die(why)
    this.#channel.kill()
  }

  #die(why: string, isBlameless = false): void {
    if (this.#phase === 'gone') return
    const error = new MillraceError('worker_lost', `a worker died: ${why}`)
    const wasReady = this.#phase !== 'starting'
    const call = this.#lastWords?.call
    const culprit = call === undefined ? undefined : this.#calls.keyOf(call)
    const { keys: calls, abandonedKeys: abandoned } = this.#calls
    this.#phase = 'gone'
    this.#death = error
    this.#watch?.[Symbol.dispose]()
    this.#ready.reject(error)
    // Callers hear of the rejection in the next microtask, when `onDeath` has said what the death means for them.
    this.#calls.rejectAll(error)
    if (wasReady)
      this.#options.onDeath(this, { error, calls, abandoned, isBlameless, ...(culprit !== undefined && { culprit }) })
  }
}

function closedError(): MillraceError {
  return new MillraceError('closed', 'the worker was closed')
}
