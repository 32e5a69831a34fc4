import { MillraceError } from '../errors/index.ts'
import { nameBlockedThread, offAbort, onAbort, settlesWithin } from '../kit/index.ts'
import type { WorkerStatus } from '../rollout/index.ts'
import type { MetricsDelta } from '../telemetry/index.ts'
import { UnansweredCalls, type CallKey } from './unanswered-calls.ts'
import {
  type ChannelOptions,
  type FromWorker,
  type CrashReport,
  type OpenChannel,
  unhandledErrors,
  type WorkerChannel,
  type WorkerReport,
  type WorkerRequest,
  type WorkerResult,
} from './channel/channel.ts'
import type { Supervision } from './supervision.ts'

export interface Call {
  readonly key: CallKey
  /** The task of a rollout: rollouts of one task run together if possible. */
  readonly task?: number
  readonly signal: AbortSignal
}

export interface WorkerDeath {
  readonly error: MillraceError
  readonly calls: readonly CallKey[]
  /** Calls that it was told to end and had not ended: nobody waits for them, but one of them may have killed it. */
  readonly abandoned: readonly CallKey[]
  readonly culprit?: CallKey
  /** Whether we ended the worker, for reasons that have nothing to do with what it ran. */
  readonly isBlameless: boolean
}

export interface PoolWorkerOptions extends Omit<ChannelOptions, 'onMessage' | 'heap'> {
  readonly restarts: number
  readonly open: OpenChannel
  readonly supervision: Supervision
  readonly onBlocked: (blocked: { readonly lagMs: number; readonly blockedBy: string }) => void
  readonly onMetrics: (delta: MetricsDelta) => void
  /** Called when the worker may have stopped taking work, or resumed; `ready` tells when it begins. */
  readonly onChange: () => void
  /** Called when the worker died after it had been ready, before the callers whose calls are lost go on. */
  readonly onDeath: (worker: PoolWorker, death: WorkerDeath) => void
}

const noReport: WorkerReport = {
  kind: 'status',
  models: [],
  offload: [],
  servers: [],
  lag: { p99Ms: 0, maxMs: 0, meanMs: 0, utilization: 0 },
  memoryBytes: 0,
}

/** Four missed beats: something holds up the worker's loop. */
const blockedAfterMs = 1_000
const maxNamedCalls = 5
/** Longer than a teardown may take once its call was told to end. */
const abortGraceMs = 10_000
/** Time for closing connections and writing the last of the journal. */
const closeGraceMs = 5_000
/** Time for the worker to be gone: a thread inside a system call cannot be ended, not even from outside. */
const killGraceMs = 10_000

/**
 * One worker from its start to its end; its replacement is another object. That is the fence: what a worker says after it was
 * abandoned is not received, and what it had written belongs to attempts that nobody continues.
 */
export class PoolWorker {
  readonly id: number
  readonly #options: PoolWorkerOptions
  readonly #channel: WorkerChannel
  readonly #ready = Promise.withResolvers<void>()
  readonly #calls = new UnansweredCalls()
  /** Resolves when the thread or process is really gone. */
  readonly exited: Promise<void>
  #phase: 'starting' | 'ready' | 'draining' | 'closing' | 'gone' = 'starting'
  #death: MillraceError | undefined
  #lastCall = 0
  #ageMs = 0
  #report = noReport
  #crashReport: CrashReport | undefined
  /** Counted in ticks of the supervisor's own clock: one that was held up must not take its workers for dead. */
  #silentMs = 0
  #look: AbortController | undefined
  #blockedBy: string | undefined
  #isStartAborted = false
  #reportedServers = 0

  constructor(options: PoolWorkerOptions) {
    const { id, open, supervision, start, journal, lease } = options
    this.id = id
    this.#options = options
    this.#channel = open({ id, start, journal, lease, heap: supervision.heap, onMessage: this.#onMessage })
    this.exited = this.#channel.exited.then((how) => this.#onExit(how))
    this.#ready.promise.catch(() => {})
  }

  /** Resolves when the worker takes work; rejects with why it never will. */
  get ready(): Promise<void> {
    return this.#ready.promise
  }

  get takesWork(): boolean {
    return this.#phase === 'ready' && !this.#isSilent
  }

  get #isSilent(): boolean {
    return this.#silentMs >= this.#options.supervision.silentAfterMs
  }

  get isGone(): boolean {
    return this.#phase === 'gone'
  }

  get death(): MillraceError | undefined {
    return this.#death
  }

  get load(): number {
    return this.#calls.size
  }

  get lagMs(): number {
    return this.#report.lag.p99Ms
  }

  get report(): WorkerReport {
    return this.#report
  }

  /** Tells the worker which tool servers were open on any worker, if that is new. They are never fewer than before. */
  tellOpened(servers: ReadonlySet<string>): void {
    if (this.#reportedServers >= servers.size || (this.#phase !== 'ready' && this.#phase !== 'draining')) return
    this.#reportedServers = servers.size
    this.#channel.post({ kind: 'servers-opened', servers: [...servers] })
  }

  get peers(): number {
    return this.#options.start.workers
  }

  get isWorn(): boolean {
    const { maxMemoryBytes, maxAgeMs } = this.#options.supervision
    return this.#phase === 'ready' && (this.#report.memoryBytes > maxMemoryBytes || this.#ageMs > maxAgeMs)
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
      state: phase === 'ready' && this.#isSilent ? 'silent' : phase,
      running: this.load,
      lag: this.#report.lag,
      memoryBytes: this.#report.memoryBytes,
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
    const listener = {
      handleEvent: () => {
        const reason = MillraceError.from(signal.reason, 'cancelled').toWire()
        this.#channel.post({ kind: 'abort', call, reason })
        // Code that blocks hears no abort, and the caller need not wait until the worker is given up.
        const graceMs = this.#isSilent ? 0 : abortGraceMs
        patience = setTimeout(() => this.#calls.abandon(call, signal.reason), graceMs)
      },
    }
    return new Promise<Value>((resolve, reject) => {
      this.#post(request, call)
      // Messages are not typed by the request they answer; the call's number ties the two together.
      this.#calls.add(call, { key, task, resolve: resolve as (value: WorkerResult) => void, reject })
      if (signal.aborted) listener.handleEvent()
      else onAbort(signal, listener)
    }).finally(() => {
      clearTimeout(patience)
      offAbort(signal, listener)
    })
  }

  /** Counts time that has passed, and ends a worker that starts for too long or is silent for too long. */
  tick(elapsedMs: number): void {
    if (this.#phase === 'gone') return
    const { replaceAfterMs, startTimeoutMs } = this.#options.supervision
    this.#ageMs += elapsedMs
    if (this.#phase === 'starting') {
      if (this.#ageMs > startTimeoutMs && !this.#isStartAborted) void this.#abortStart()
      return
    }
    const wasSilent = this.#isSilent
    this.#silentMs += elapsedMs
    if (!wasSilent && this.#isSilent) this.#options.onChange()
    const isAtWork = this.#phase === 'ready' || this.#phase === 'draining'
    if (isAtWork && this.#silentMs >= blockedAfterMs && this.#blockedBy === undefined) void this.#lookInto()
    if (this.#silentMs < replaceAfterMs) return
    const what = this.#blockedBy === undefined ? '' : ` by ${this.#blockedBy}`
    this.#kill(`it was blocked for ${Math.round(this.#silentMs)} ms${what}`)
  }

  async retire(): Promise<void> {
    if (this.#phase === 'ready') {
      this.#phase = 'draining'
      this.#options.onChange()
      await this.#calls.empty(this.#options.supervision.retireTimeoutMs)
      if (this.load > 0) this.#die('it was replaced, and its rollouts did not end within its time to finish', true)
    }
    await this.close()
  }

  /** Ends the worker, in good order if it listens; the calls it runs are abandoned. */
  async close(): Promise<void> {
    if (this.#phase === 'starting' || this.#phase === 'gone' || this.#isSilent) this.#channel.kill()
    else this.#channel.post({ kind: 'close' })
    this.#look?.abort()
    if (this.#phase !== 'gone') this.#phase = 'closing'
    const closed = closedError()
    this.#ready.reject(closed)
    this.#calls.rejectAll(closed)
    if (await settlesWithin(this.exited, closeGraceMs)) return
    this.#channel.kill()
    await settlesWithin(this.exited, killGraceMs)
  }

  readonly #onMessage = (message: FromWorker): void => {
    if (this.#phase === 'gone') return
    const wasSilent = this.#isSilent
    this.#silentMs = 0
    this.#blockedBy = undefined
    this.#look?.abort()
    if (wasSilent) this.#options.onChange()
    switch (message.kind) {
      case 'ready':
        if (this.#phase === 'starting') this.#phase = 'ready'
        this.#ready.resolve()
        return
      case 'start-failed':
        this.#ready.reject(MillraceError.fromWire(message.error))
        return
      case 'status':
        this.#report = message
        if (message.metrics) this.#options.onMetrics(message.metrics)
        return
      case 'unhandled-error':
        unhandledErrors.publish(message.error)
        return
      case 'crash-report':
        this.#crashReport = message
        return
      case 'done':
        this.#calls.resolve(message.call, message.value)
        return
      case 'failed':
        this.#calls.reject(message.call, MillraceError.fromWire(message.error))
        return
    }
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
    this.#look?.abort()
    if (this.#phase === 'closing') {
      this.#phase = 'gone'
      this.#calls.rejectAll(closedError())
      this.#options.onChange()
    } else {
      const thrown = this.#crashReport?.error
      const place = thrown?.place === undefined ? '' : ` (at ${thrown.place})`
      this.#die(thrown ? `${thrown.message}${place}` : how)
    }
  }

  /** Ends a worker that does not get ready, and says what it is stuck in; if that cannot be told, which module it loads. */
  async #abortStart(): Promise<void> {
    this.#isStartAborted = true
    const { start, supervision } = this.#options
    const blockedBy = await this.#blockedIn(new AbortController().signal)
    if (this.#phase !== 'starting') return
    const where =
      blockedBy === undefined ? `check whether ${start.specifier} finishes loading` : `it is in ${blockedBy}`
    this.#kill(`it was not ready after ${supervision.startTimeoutMs} ms: ${where}`)
  }

  /** Reports what blocks the loop, once for each time. If that cannot be told, as in a native call, the next tick looks again. */
  async #lookInto(): Promise<void> {
    if (this.#look) return
    const look = new AbortController()
    this.#look = look
    const lagMs = this.#silentMs
    const blockedBy = await this.#blockedIn(look.signal)
    this.#look = undefined
    // The worker has sent something meanwhile: what was named is not what held it up.
    if (look.signal.aborted || blockedBy === undefined) return
    this.#blockedBy = blockedBy
    this.#options.onBlocked({ lagMs, blockedBy })
  }

  /** The function that a thread is stuck in. A process cannot be looked into, so its rollouts are named. */
  async #blockedIn(signal: AbortSignal): Promise<string | undefined> {
    const { thread } = this.#channel
    if (thread) return await nameBlockedThread(thread, signal)
    const { keys } = this.#calls
    if (keys.length === 0) return undefined
    const more = keys.length > maxNamedCalls ? ` and ${keys.length - maxNamedCalls} more` : ''
    return `one of its rollouts (${keys.slice(0, maxNamedCalls).join(', ')}${more})`
  }

  #kill(why: string): void {
    this.#die(why)
    this.#channel.kill()
  }

  #die(why: string, isBlameless = false): void {
    if (this.#phase === 'gone') return
    const error = new MillraceError('worker_lost', `a worker died: ${why}`)
    const wasReady = this.#phase !== 'starting'
    const call = this.#crashReport?.call
    const culprit = call === undefined ? undefined : this.#calls.keyOf(call)
    const { keys: calls, abandonedKeys: abandoned } = this.#calls
    this.#phase = 'gone'
    this.#death = error
    this.#look?.abort()
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
