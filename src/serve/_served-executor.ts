import type { MillraceError } from '../errors/index.ts'
import {
  recordWithoutRun,
  startWithoutRun,
  type AttemptResult,
  type Executor,
  type GroupJob,
  type GroupScores,
  type OffloadStatus,
  type RolloutJob,
  type WorkerStatus,
} from '../rollout/index.ts'
import type { ModelStatus } from '../inference/index.ts'
import type { RolloutRecord } from '../schema/index.ts'
import type { Journal } from '../store/index.ts'

export interface ServedExecutorOptions {
  readonly executor: Executor
  readonly journal: Journal
  readonly labels: Pick<RolloutRecord, 'environment' | 'model'>
  /** Called when an attempt is about to run; why it must not, if it was cancelled. */
  readonly onStart: (rollout: string) => MillraceError | undefined
}

/**
 * An executor that runs nothing which was cancelled: a rollout is out of everybody's reach while it is on its way from
 * the queue to its worker, and between two attempts.
 */
export class ServedExecutor implements Executor {
  readonly #options: ServedExecutorOptions

  constructor(options: ServedExecutorOptions) {
    this.#options = options
  }

  run(job: RolloutJob, signal: AbortSignal): Promise<AttemptResult> {
    const { executor, onStart } = this.#options
    const cancelled = onStart(job.id)
    return cancelled ? Promise.resolve(this.#cancelled(job, cancelled)) : executor.run(job, signal)
  }

  scoreGroup(job: GroupJob, signal: AbortSignal): Promise<GroupScores> {
    return this.#options.executor.scoreGroup(job, signal)
  }

  preflight(signal: AbortSignal): Promise<void> {
    return this.#options.executor.preflight(signal)
  }

  get takesWork(): boolean {
    return this.#options.executor.takesWork
  }

  models(): readonly ModelStatus[] {
    return this.#options.executor.models()
  }

  workers(): readonly WorkerStatus[] {
    return this.#options.executor.workers()
  }

  offload(): readonly OffloadStatus[] {
    return this.#options.executor.offload()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#options.executor[Symbol.asyncDispose]()
  }

  /** It goes on nowhere: what an earlier sitting has of it stays in the journal, and is not part of its record. */
  #cancelled({ id, attempt, sample, task }: RolloutJob, error: MillraceError): AttemptResult {
    const { labels, journal } = this.#options
    const where = { index: task.index, id: task.id }
    const record = recordWithoutRun({ ...labels, id, attempt, sample, task: where, outcome: 'cancelled', error })
    journal.append(startWithoutRun(record))
    return { kind: 'ended', record, leaf: null }
  }
}
