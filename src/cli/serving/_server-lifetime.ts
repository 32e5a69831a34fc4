import { MillraceError } from '../../errors/index.ts'
import type { LoopLagWindow } from '../../kit/index.ts'
import type { WorkerStatus } from '../../rollout/index.ts'
import { LagWatch, type Logger } from '../../telemetry/index.ts'
import { exitCodes, type ExitCode } from '../process/exit-codes.ts'
import { Interrupts } from '../process/interrupts.ts'
import type { CommandIo } from '../process/io.ts'
import { StrayErrors } from '../process/stray-errors.ts'

/** A loop that ran so late once is worth a line. */
const lagThresholdMs = 250

/** What a command serves. */
export interface Served {
  /** Aborts when it cannot go on. */
  readonly failure: AbortSignal
  drain(): Promise<void>
  /** How late its loops run. */
  loops(): Readonly<Record<string, LoopLagWindow>>
  workers(): readonly WorkerStatus[]
}

/**
 * From the start of a command that serves to its exit code: the first signal drains what is served, the second stops it,
 * and so does whatever it cannot survive.
 */
export class ServerLifetime implements Disposable {
  readonly #logger: Logger
  readonly #stopping = new AbortController()
  readonly #ended = Promise.withResolvers<'drained' | 'stopped'>()
  readonly #interrupts: Interrupts
  readonly #stray: StrayErrors
  readonly #stop: () => void
  #served: Served | undefined
  #onDrain: () => void = () => {}

  /** `name` is what is said to have been stopped, should that come before it is ready. */
  constructor(io: CommandIo, logger: Logger, name: string) {
    this.#logger = logger
    this.#stop = () => {
      this.#stopping.abort(new MillraceError('cancelled', `stopped before the ${name} was ready`))
      this.#ended.resolve('stopped')
    }
    this.#interrupts = new Interrupts(io.events, { drain: () => this.#drain(), stop: this.#stop })
    this.#stray = new StrayErrors(io.events, {
      onFirstRejection: (text) => logger.lines.warn(text),
      onException: this.#stop,
    })
  }

  /** For whatever is done before it is ready. */
  get signal(): AbortSignal {
    return this.#stopping.signal
  }

  /** It is there: a signal now lets what runs end, after `onDrain` said so. */
  begin(served: Served, onDrain: () => void): void {
    this.#served = served
    this.#onDrain = onDrain
  }

  /** How what has begun ended. Throws what it could not survive. Its loops are watched meanwhile. */
  async end(): Promise<'drained' | 'stopped'> {
    const served = this.#served
    if (!served) throw new MillraceError('internal', 'nothing has begun')
    served.failure.addEventListener('abort', () => this.#ended.resolve('stopped'), { once: true })
    using _lag = new LagWatch({
      logger: this.#logger,
      thresholdMs: lagThresholdMs,
      loops: () => served.loops(),
      workers: () => served.workers(),
    })
    const how = await this.#ended.promise
    if (this.#stray.exception) throw this.#stray.exception
    if (served.failure.aborted) throw served.failure.reason
    return how
  }

  exitCode(how: 'drained' | 'stopped'): ExitCode {
    return how === 'drained' ? exitCodes.ok : (this.#interrupts.exitCode ?? exitCodes.failed)
  }

  /** Of a command that was stopped while it started. Throws any other error again. */
  exitCodeFor(error: unknown): ExitCode {
    const { exitCode } = this.#interrupts
    if (this.signal.aborted && exitCode !== undefined && !this.#stray.exception) return exitCode
    throw error
  }

  [Symbol.dispose](): void {
    this.#stray[Symbol.dispose]()
    this.#interrupts[Symbol.dispose]()
  }

  #drain(): void {
    // Before it is ready there is nothing to wait for.
    if (!this.#served) return this.#stop()
    this.#onDrain()
    void this.#served.drain().then(() => this.#ended.resolve('drained'), this.#ended.reject)
  }
}
