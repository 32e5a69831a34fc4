import { MillraceError } from '../errors/index.ts'
import { AbortSource, offAbort, onAbort } from '../kit/index.ts'
import type { Scheduler } from '../rollout/index.ts'
import type { Progress } from './progress.ts'
import type { Summary } from './summary.ts'

/** How far a run is to go, and how it ended: it ends early if it is drained, stopped, or has spent what it may. */
export class RunControl {
  readonly #stopping = new AbortController()
  readonly #admission = new AbortSource()
  #state: Progress['state'] = 'running'
  #end: Summary['end'] = 'complete'
  #hasRefusedRetry = false
  #scheduler: Scheduler | undefined

  get state(): Progress['state'] {
    return this.#state
  }

  get end(): Summary['end'] {
    return this.#end
  }

  get stopping(): AbortSignal {
    return this.#stopping.signal
  }

  /** Aborts when nothing new is to start: a source of tasks that is stuck must not hold up the end. */
  get admission(): AbortSignal {
    return this.#admission.signal
  }

  get active(): number {
    return this.#scheduler?.active ?? 0
  }

  follow(signal: AbortSignal | undefined): Disposable | undefined {
    return following(signal, (cause) =>
      this.stop(new MillraceError('cancelled', 'the run was stopped by its signal', { cause })),
    )
  }

  /** Passes on to the scheduler what becomes of the run, and stops it when the store fails. */
  steer(scheduler: Scheduler, storeFailure: AbortSignal): Disposable {
    this.#scheduler = scheduler
    // `drain` or `stop` may have been called before there was a scheduler.
    if (this.#state !== 'running') scheduler.drain()
    const follows = new DisposableStack()
    for (const signal of [this.stopping, storeFailure]) {
      follows.use(following(signal, (reason) => scheduler.stop(MillraceError.from(reason, 'cancelled'))))
    }
    return follows
  }

  drain(end: 'drained' | 'max_cost' = 'drained'): void {
    if (this.#state !== 'running') return
    this.#state = 'draining'
    this.#end = end
    this.#scheduler?.drain()
    this.#admission.abort(new MillraceError('cancelled', 'the run was drained before it had started'))
  }

  stop(reason: MillraceError): void {
    if (this.#state === 'stopping' || this.#state === 'ended') return
    this.#state = 'stopping'
    this.#end = 'stopped'
    this.#stopping.abort(reason)
    this.#admission.abort(reason)
  }

  endAdmission(): void {
    this.#admission.abort(new MillraceError('cancelled', 'no more rollouts are started'))
  }

  /** The run has spent what it may, so a failed rollout does not start over. */
  refuseRetry(): void {
    this.#hasRefusedRetry = true
  }

  /** All rollouts have run: a drain or stop came too late to matter, unless a retry was refused. */
  noteAllRun(): void {
    this.#end = this.#hasRefusedRetry ? 'max_cost' : 'complete'
  }

  noteFailure(): void {
    this.#end = 'failed'
  }

  noteEnded(): void {
    this.#state = 'ended'
  }
}

/** Calls `stop` when the signal aborts, or now if it has, until disposed. */
function following(signal: AbortSignal | undefined, stop: (reason: unknown) => void): Disposable | undefined {
  if (!signal) return undefined
  const listener = { handleEvent: () => stop(signal.reason) }
  if (signal.aborted) listener.handleEvent()
  else onAbort(signal, listener)
  return { [Symbol.dispose]: () => offAbort(signal, listener) }
}
