import { MillraceError } from '../errors/index.ts'
import {
  holdsGroups,
  recordedSpending,
  recordWithoutRun,
  Scheduler,
  type PlannedAttempt,
  type PlannedRollout,
  type SchedulerOptions,
} from '../rollout/index.ts'
import type { RolloutRecord } from '../schema/index.ts'
import { PlanQueue } from './_plan-queue.ts'
import type { UnsettledRollout } from './_unsettled-rollouts.ts'

/** Cancelled rollouts that never ran are settled this many at a time. */
const settledAtOnce = 64

/** Rollouts from when their request is on disk until they have a result: they wait for a place, run, or are cancelled. */
export class DueRollouts {
  readonly #labels: SchedulerOptions['labels']
  readonly #isGrouped: boolean
  readonly #scheduler: Scheduler
  /** Settles what never ran, which must not wait for a place among those that run. */
  readonly #clerk: Scheduler
  readonly #waiting = new PlanQueue()
  readonly #cancelled = new PlanQueue()

  constructor(options: Omit<SchedulerOptions, 'onAdmissionEnd'>) {
    this.#labels = options.labels
    this.#isGrouped = holdsGroups(options.group)
    this.#scheduler = new Scheduler({ ...options, onAdmissionEnd: () => this.#waiting.end() })
    this.#clerk = new Scheduler({
      ...options,
      concurrency: settledAtOnce,
      group: { size: 1, policy: 'keep', isScored: false },
      onAdmissionEnd: () => this.#cancelled.end(),
    })
  }

  /** Resolves when it was drained or stopped, and everything that ran has its result. Rejects if anything failed. */
  async run(): Promise<void> {
    const running = this.#scheduler.run(this.#waiting).finally(() => this.#cancelled.end())
    const settling = this.#clerk.run(this.#cancelled).catch((error: unknown) => {
      this.stop(MillraceError.from(error, 'internal'))
      throw error
    })
    await Promise.all([running, settling])
  }

  /** One whose request may have been cancelled while it was on the way to the disk. */
  add(unsettled: UnsettledRollout, plan: PlannedRollout): void {
    unsettled.state = 'queued'
    this.#waiting.push(plan)
    if (unsettled.cancelled) this.cancel(unsettled, unsettled.cancelled)
  }

  cancel(unsettled: UnsettledRollout, reason: MillraceError): void {
    const { id } = unsettled
    unsettled.cancelled = reason
    if (unsettled.state === 'running') {
      this.#scheduler.cancel(id, reason)
      return
    }
    // Its group is settled as a whole, so it stays in line: it ends when its turn comes, without being run.
    if (this.#isGrouped || unsettled.state !== 'queued') return
    const plan = this.#waiting.remove(id)
    // The scheduler has it in hand.
    if (!plan) return
    // One that cannot run has its result already.
    const isRunnable = plan.kind === 'attempt'
    this.#cancelled.push(isRunnable ? { kind: 'settled', record: this.#cancelledRecord(plan, reason) } : plan)
  }

  /** Starts nothing new, and waits for no backend that is gone. */
  drain(): void {
    this.#scheduler.drainSoon()
  }

  /** The same, and ends what runs. */
  stop(reason: MillraceError): void {
    this.#scheduler.stop(reason)
  }

  #cancelledRecord({ id, sample, attempt, task, recorded }: PlannedAttempt, error: MillraceError): RolloutRecord {
    return recordWithoutRun({
      ...this.#labels,
      id,
      sample,
      attempt,
      task: { index: task.index, id: task.id },
      outcome: 'cancelled',
      error,
      spent: recordedSpending(recorded),
    })
  }
}
