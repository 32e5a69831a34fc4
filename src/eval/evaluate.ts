import { MillraceError } from '../errors/index.ts'
import { AsyncQueue, type Draft, LoopLag } from '../kit/index.ts'
import type { RolloutRecord } from '../schema/index.ts'
import type { EvaluateOptions, Evaluation, RunInfo } from './evaluation.ts'
import { knownEvaluateOptions, requireKnownOptions } from './known-options.ts'
import { openSitting, type SittingParts } from './_open-sitting.ts'
import type { Progress } from './progress.ts'
import { RunControl } from './_run-control.ts'
import { progressOf } from './_run-progress.ts'
import { summaryOf } from './_run-summary.ts'
import type { Summary } from './summary.ts'
import { workThrough } from './_work-through.ts'

/** Runs an environment's tasks against a model and hands out every rollout as it ends. */
export function evaluate(options: EvaluateOptions): Evaluation {
  return new RunningEvaluation(options)
}

/** Results that may wait for a slow reader; beyond this, rollouts keep their places. */
const maxUnreadResults = 256

class RunningEvaluation implements Evaluation {
  readonly started: Promise<RunInfo>
  readonly #results: AsyncQueue<RolloutRecord>
  readonly #summary = Promise.withResolvers<Summary>()
  readonly #startedAt = performance.now()
  readonly #lag = new LoopLag()
  readonly #control = new RunControl()
  /** The parts of the sitting that are open by now. */
  readonly #parts: Partial<Draft<SittingParts>> = {}

  constructor(options: EvaluateOptions) {
    this.#results = new AsyncQueue(maxUnreadResults, () => this.#onReaderGone())
    const started = Promise.withResolvers<RunInfo>()
    this.started = started.promise
    // A failure rejects all three promises, and not everybody awaits all of them.
    started.promise.catch(() => {})
    this.#summary.promise.catch(() => {})
    this.#carryOut(options, started.resolve).then(
      (summary) => {
        this.#control.noteEnded()
        this.#summary.resolve(summary)
        this.#results.end()
      },
      (error: unknown) => {
        this.#control.noteEnded()
        started.reject(error)
        this.#summary.reject(error)
        this.#results.fail(error)
      },
    )
  }

  [Symbol.asyncIterator](): AsyncIterator<RolloutRecord> {
    return this.#results[Symbol.asyncIterator]()
  }

  drain(): void {
    this.#control.drain()
  }

  stop(): void {
    this.#control.stop(new MillraceError('cancelled', 'the run was stopped'))
  }

  async summary(): Promise<Summary> {
    this.#results.awaitEnd()
    return await this.#summary.promise
  }

  progress(): Progress {
    return progressOf(this.#parts, {
      control: this.#control,
      elapsedMs: performance.now() - this.#startedAt,
      unread: this.#results.size,
      lag: this.#lag.snapshot(),
    })
  }

  async #carryOut(options: EvaluateOptions, onStarted: (info: RunInfo) => void): Promise<Summary> {
    using _lag = this.#lag
    requireKnownOptions(options, 'evaluate()', knownEvaluateOptions)
    const control = this.#control
    using _signal = control.follow(options.signal)
    await using sitting = await openSitting(options, control, this.#parts)
    onStarted(sitting.begin())
    return summaryOf(sitting, await workThrough(sitting, control, this.#results))
  }

  /** Leaving the loop early stops the run; reaching its end finds it ended already. */
  async #onReaderGone(): Promise<void> {
    this.stop()
    await this.#summary.promise.catch(() => {})
  }
}
