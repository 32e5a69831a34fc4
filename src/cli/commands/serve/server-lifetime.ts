import { MillraceError } from '../../../errors/index.ts'
import { type LoopLagWindow, onAbort } from '../../../kit/index.ts'
import type { WorkerStatus } from '../../../rollout/index.ts'
import { LagLogger, type Logger } from '../../../telemetry/index.ts'
import { exitCodes, type ExitCode } from '../../terminal/exit-codes.ts'
import { Interrupts, UnhandledErrors } from '../../terminal/signals.ts'
import type { CommandIo } from '../../terminal/io.ts'

/** A loop that was late by this much is logged. */
const lagThresholdMs = 250

export interface Served {
  /** Aborts when the server cannot go on. */
  readonly failure: AbortSignal
  drain(): Promise<void>
  readonly loops: () => Readonly<Record<string, LoopLagWindow>>
  readonly workers: () => readonly WorkerStatus[]
}

/** A serving command: the first signal drains the server, the second stops it, and so does a failure of the server. */
export class ServerLifetime implements Disposable {
  readonly #logger: Logger
  readonly #stopping = new AbortController()
  readonly #ended = Promise.withResolvers<'drained' | 'stopped'>()
  readonly #interrupts: Interrupts
  readonly #unhandled: UnhandledErrors
  readonly #stop: () => void
  #served: Served | undefined
  #onDrain: () => void = () => {}

  /** `name` is the server's name in the message if it is stopped before it is ready. */
  constructor(io: CommandIo, logger: Logger, name: string) {
    this.#logger = logger
    this.#stop = () => {
      this.#stopping.abort(new MillraceError('cancelled', `stopped before the ${name} was ready`))
      this.#ended.resolve('stopped')
    }
    this.#interrupts = new Interrupts(io.events, { drain: () => this.#drain(), stop: this.#stop })
    this.#unhandled = new UnhandledErrors(io.events, {
      onFirstRejection: (text) => logger.lines.warn(text),
      onException: this.#stop,
    })
  }

  get signal(): AbortSignal {
    return this.#stopping.signal
  }

  /** Called when the server is ready: from now on, a first signal calls `onDrain` and drains the server. */
  begin(served: Served, onDrain: () => void): void {
    this.#served = served
    this.#onDrain = onDrain
  }

  /** Resolves to how the server ended. Throws a failure that it could not survive. Meanwhile its event loops are watched. */
  async end(): Promise<'drained' | 'stopped'> {
    const served = this.#served
    if (!served) throw new MillraceError('internal', 'the server has not started')
    onAbort(served.failure, { handleEvent: () => this.#ended.resolve('stopped') })
    const { loops, workers } = served
    using _lag = new LagLogger({ logger: this.#logger, thresholdMs: lagThresholdMs, loops, workers })
    const how = await this.#ended.promise
    if (this.#unhandled.exception) throw this.#unhandled.exception
    if (served.failure.aborted) throw served.failure.reason
    return how
  }

  exitCode(how: 'drained' | 'stopped'): ExitCode {
    return how === 'drained' ? exitCodes.ok : (this.#interrupts.exitCode ?? exitCodes.failed)
  }

  /** The exit code of a command that was stopped by a signal while it started. Throws any other error again. */
  exitCodeFor(error: unknown): ExitCode {
    const { exitCode } = this.#interrupts
    if (this.signal.aborted && exitCode !== undefined && !this.#unhandled.exception) return exitCode
    throw error
  }

  [Symbol.dispose](): void {
    this.#unhandled[Symbol.dispose]()
    this.#interrupts[Symbol.dispose]()
  }

  #drain(): void {
    // Before the server is ready, there is nothing to wait for.
    if (!this.#served) return this.#stop()
    this.#onDrain()
    void this.#served.drain().then(() => this.#ended.resolve('drained'), this.#ended.reject)
  }
}
