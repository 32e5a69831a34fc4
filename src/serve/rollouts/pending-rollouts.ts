import { MillraceError } from '../../errors/index.ts'
import {
  waitsForGroups,
  type PlannedAttempt,
  type PlannedRollout,
  recordWithoutRun,
  Scheduler,
  type SchedulerOptions,
} from '../../rollout/index.ts'
import type { RolloutRecord } from '../../schema/index.ts'
import type { ActiveRequest } from '../requests/active-request.ts'
import type { ServeBounds } from './service-parts.ts'

const settledAtOnce = 64

/** Rollouts from when their request is on disk until they have a result: they wait for a place, run, or are cancelled. */
export class PendingRollouts {
  readonly #labels: SchedulerOptions['labels']
  readonly #reader: SchedulerOptions['reader']
  readonly #isGrouped: boolean
  readonly #scheduler: Scheduler
  /** Settles what never ran, which must not wait for a place among those that run. */
  readonly #clerk: Scheduler
  readonly #waiting = new PlanQueue()
  readonly #cancelled = new PlanQueue()

  constructor(options: Omit<SchedulerOptions, 'onAdmissionEnd'>) {
    this.#labels = options.labels
    this.#reader = options.reader
    this.#isGrouped = waitsForGroups(options.group)
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

  drain(): void {
    this.#scheduler.drain()
  }

  stop(reason: MillraceError): void {
    this.#scheduler.stop(reason)
  }

  #cancelledRecord({ id, sample, attempt, task, resumed }: PlannedAttempt, error: MillraceError): RolloutRecord {
    return recordWithoutRun({
      ...this.#labels,
      id,
      sample,
      attempt,
      task: { index: task.index, id: task.id },
      outcome: 'cancelled',
      error,
      spent: resumed && this.#reader.spending(id, attempt),
    })
  }
}

/** Plans that wait for a place, from which one can be taken back. The service bounds what it admits. Read once. */
export class PlanQueue implements AsyncIterable<PlannedRollout> {
  /** A map, because it keeps its order and gives up any of its members at once. */
  readonly #plans = new Map<string, PlannedRollout>()
  #wake: (() => void) | undefined
  #hasEnded = false

  push(plan: PlannedRollout): void {
    this.#plans.set(planId(plan), plan)
    this.#wakeReader()
  }

  remove(id: string): PlannedRollout | undefined {
    const plan = this.#plans.get(id)
    this.#plans.delete(id)
    return plan
  }

  end(): void {
    this.#hasEnded = true
    this.#wakeReader()
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<PlannedRollout, void, void> {
    for (;;) {
      for (const [id, plan] of this.#plans) {
        this.#plans.delete(id)
        yield plan
      }
      if (this.#hasEnded) return
      const { promise, resolve } = Promise.withResolvers<void>()
      this.#wake = resolve
      await promise
    }
  }

  #wakeReader(): void {
    const wake = this.#wake
    this.#wake = undefined
    wake?.()
  }
}

export function planId(plan: PlannedRollout): string {
  if (plan.kind === 'attempt') return plan.id
  return plan.kind === 'held' ? plan.held.record.id : plan.record.id
}

/** A rollout that was asked for and has no durable result yet. */
export interface UnsettledRollout {
  readonly id: string
  readonly request: ActiveRequest
  readonly bytes: number
  /** `accepting`: its request is on the way to the disk. */
  state: 'accepting' | 'queued' | 'running'
  cancelled?: MillraceError
}

export class UnsettledRollouts {
  readonly #rollouts = new Map<string, UnsettledRollout>()
  readonly #bounds: ServeBounds
  #running = 0
  #waitingBytes = 0

  constructor(bounds: ServeBounds) {
    this.#bounds = bounds
  }

  get running(): number {
    return this.#running
  }

  get waiting(): number {
    return this.#rollouts.size - this.#running
  }

  /** Fails with `overloaded` if so much more cannot wait now, with `usage` if it never could. */
  requireRoom(rollouts: number, bytes: number): void {
    const { waiting } = this
    const { maxQueuedRollouts, maxQueuedBytes } = this.#bounds
    if (rollouts > maxQueuedRollouts) throw neverFits(rollouts, 'rollouts', maxQueuedRollouts)
    if (bytes > maxQueuedBytes) throw neverFits(bytes, 'bytes of tasks', maxQueuedBytes)
    if (waiting + rollouts <= maxQueuedRollouts && this.#waitingBytes + bytes <= maxQueuedBytes) return
    throw new MillraceError(
      'overloaded',
      `${waiting} rollouts already wait, and the limit is ${maxQueuedRollouts}; try again later, or in smaller parts`,
      { data: { queued: waiting, maxQueued: maxQueuedRollouts } },
    )
  }

  get(id: string): UnsettledRollout | undefined {
    return this.#rollouts.get(id)
  }

  has(id: string): boolean {
    return this.#rollouts.has(id)
  }

  add(rollout: UnsettledRollout): void {
    this.#rollouts.set(rollout.id, rollout)
    this.#waitingBytes += rollout.bytes
  }

  /** It is given to a worker. It may have been before: an attempt can start over. */
  start(rollout: UnsettledRollout): void {
    if (rollout.state === 'running') return
    rollout.state = 'running'
    this.#countRunning(rollout, 1)
    this.#waitingBytes -= rollout.bytes
  }

  giveBack(rollout: UnsettledRollout): void {
    if (rollout.state !== 'running') return
    rollout.state = 'queued'
    this.#countRunning(rollout, -1)
    this.#waitingBytes += rollout.bytes
  }

  remove(id: string): UnsettledRollout | undefined {
    const rollout = this.#rollouts.get(id)
    if (!rollout) return undefined
    this.#rollouts.delete(id)
    if (rollout.state === 'running') this.#countRunning(rollout, -1)
    else this.#waitingBytes -= rollout.bytes
    return rollout
  }

  #countRunning({ request }: UnsettledRollout, change: 1 | -1): void {
    this.#running += change
    request.running += change
  }
}

function neverFits(count: number, what: string, max: number): MillraceError {
  return new MillraceError(
    'usage',
    `it makes ${count} ${what}, and at most ${max} may wait at one time; send it in parts`,
  )
}
