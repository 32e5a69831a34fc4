import type { BackendReply } from '../inference/index.ts'
import type { PacedJob } from './_paced-job.ts'

/**
 * A reply that a caller in this process waits for. It settles once, by whatever comes first: its end, a fault, the caller's
 * signal or the end of the simulator; after that it holds neither timer nor listener.
 */
export abstract class PendingSend {
  readonly promise: Promise<BackendReply>
  readonly #signal: AbortSignal
  readonly #resolve: (reply: BackendReply) => void
  readonly #reject: (reason: unknown) => void
  #isSettled = false

  constructor(signal: AbortSignal) {
    const { promise, resolve, reject } = Promise.withResolvers<BackendReply>()
    this.promise = promise
    this.#resolve = resolve
    this.#reject = reject
    this.#signal = signal
    signal.addEventListener('abort', this)
  }

  /** Starts the reply; called once. */
  run(): Promise<BackendReply> {
    this.job.start()
    return this.promise
  }

  /** The signal aborted. */
  handleEvent(): void {
    this.fail(this.#signal.reason)
  }

  fail(reason: unknown): void {
    if (this.#isSettled) return
    this.#settle()
    this.onFail()
    this.#reject(reason)
  }

  protected abstract readonly job: PacedJob

  /** Called before the caller hears of the failure. */
  protected onFail(): void {}

  protected succeed(reply: BackendReply): void {
    if (this.#isSettled) return
    this.#settle()
    this.#resolve(reply)
  }

  #settle(): void {
    this.#isSettled = true
    this.job.stop()
    this.#signal.removeEventListener('abort', this)
  }
}
