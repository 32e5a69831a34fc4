import { MillraceError } from '../../errors/index.ts'
import { AbortSource, Semaphore, TimeSlice } from '../../kit/index.ts'
import { outcomes, type RolloutRecord } from '../../schema/index.ts'
import { attemptEnd, attemptStart, type HeldRollout, rolloutEnd } from './journal-entries.ts'
import { failedReward } from '../result/outcome.ts'
import {
  applyGroupScores,
  GroupCollector,
  type GroupRules,
  type HeldMember,
  waitsForGroups,
  voidGroup,
} from './groups.ts'
import type { RolloutJob, RolloutTerms } from './executor.ts'
import { RolloutAttempts, type AttemptOptions, type PlannedAttempt, type UsedRetries } from './attempts.ts'

/** A rollout that is due, and how far an earlier launch came with it. */
export type PlannedRollout =
  | PlannedAttempt
  | (RolloutTerms & { readonly kind: 'held'; readonly held: HeldRollout; readonly used?: UsedRetries })
  /** The rollout cannot run, and its record says why. */
  | { readonly kind: 'settled'; readonly record: RolloutRecord }

export interface SchedulerOptions extends AttemptOptions {
  readonly concurrency: number
  readonly group: GroupRules
  /** Called when a group is about to be scored: its members may all have run in an earlier launch. */
  readonly onGroupScore?: () => void
  /** Takes a rollout whose result is on disk; readers of the run may see it a little later. While too many are waiting to be taken, nothing new starts. */
  readonly onSettled: (record: RolloutRecord) => Promise<void> | void
  /** Whether a client waits for each result. If not, a result may wait some 20 ms for a commit that others need. */
  readonly isAwaited?: boolean
  /** Takes back a rollout that this launch does not start, or does not start over; its plan is for the next attempt. */
  readonly onLeft?: (left: PlannedRollout) => void
  /** Called when nothing new starts any more, for whatever reason: a source of plans need not wait for more of them. */
  readonly onAdmissionEnd: () => void
}

const maxUnsettled = 256

/** A burst of starts yields to the event loop after this long: 2,048 rollouts must not begin in one turn of it. */
const startBurstMs = 1

/** Admits rollouts, holds ended ones until their group is whole, and reports every result once it is on disk. */
export class Scheduler {
  readonly #options: SchedulerOptions
  readonly #slots: Semaphore
  readonly #groups: GroupCollector | undefined
  readonly #settling = new Semaphore(maxUnsettled)
  readonly #admission = new AbortSource()
  readonly #stopping = new AbortController()
  readonly #attempts: RolloutAttempts
  /** Rollouts that have not ended, and results that have not been taken. */
  #work = 0
  /** Whether a rollout was not started, was cut off, or did not start over when it failed: another launch may do that. */
  #hasLeftWork = false
  #onIdle: (() => void) | undefined
  #failure: unknown

  constructor(options: SchedulerOptions) {
    this.#options = options
    this.#slots = new Semaphore(options.concurrency)
    const { group, retries } = options
    this.#groups = waitsForGroups(group) ? new GroupCollector(group, retries) : undefined
    this.#attempts = new RolloutAttempts(options, {
      stopping: this.#stopping.signal,
      draining: this.#admission.signal,
      onEnd: this.#settleOrHold,
      onLeft: ({ kind, id, sample, attempt, ...rest }) => this.#leave({ kind, id, sample, attempt, ...termsOf(rest) }),
    })
  }

  get active(): number {
    return this.#attempts.active
  }

  /** Resolves to true when everything planned has ended, to false when admission stopped and the running rollouts have ended. */
  async run(plans: AsyncIterable<PlannedRollout>): Promise<boolean> {
    const { signal } = this.#admission
    const { journal } = this.#options
    let hasStartedAll = false
    try {
      const burst = new TimeSlice(startBurstMs)
      for await (const plan of plans) {
        if (signal.aborted) {
          this.#leave(plan)
          break
        }
        if (!this.#slots.tryAcquire()) await this.#waitForSlot(plan)
        void this.#run(plan)
        if (journal.pressure >= 1) await journal.durable()
        if (burst.isOver) await burst.rest()
      }
      hasStartedAll = !signal.aborted
    } catch (error) {
      // A source that is told to stop may throw an error of its own.
      if (!signal.aborted) this.#failure ??= error
    }
    while (this.#work > 0) await new Promise<void>((resolve) => (this.#onIdle = resolve))
    if (this.#failure) throw this.#failure
    const hasRunAll = hasStartedAll && !this.#hasLeftWork
    if (hasRunAll && this.#groups && this.#groups.open > 0) {
      throw new MillraceError('internal', `${this.#groups.open} groups never got all their members; please report this`)
    }
    return hasRunAll
  }

  drain(): void {
    if (this.#admission.signal.aborted) return
    this.#admission.abort(new MillraceError('closed', 'the run is draining'))
    this.#options.onAdmissionEnd()
  }

  /** Cancels what runs; those rollouts stay unfinished, to be resumed. */
  stop(reason: MillraceError): void {
    if (this.#stopping.signal.aborted) return
    if (this.#attempts.active > 0) this.#hasLeftWork = true
    this.#stopping.abort(reason)
    this.drain()
    this.#attempts.abortAll(reason)
  }

  /** Ends one running rollout, as `cancelled`; false if no rollout of that id runs. */
  cancel(id: string, reason: MillraceError): boolean {
    return this.#attempts.cancel(id, reason)
  }

  /** Rejects if nothing new starts any more. */
  async #waitForSlot(plan: PlannedRollout): Promise<void> {
    try {
      await this.#slots.acquire(this.#admission.signal)
    } catch (error) {
      this.#leave(plan)
      throw error
    }
  }

  #leave(plan: PlannedRollout): void {
    this.#hasLeftWork = true
    this.#options.onLeft?.(plan)
  }

  /** A plan holds a place while it is carried out. An error here is the run's failure. */
  async #run(plan: PlannedRollout): Promise<void> {
    this.#work += 1
    if (plan.kind !== 'settled' && plan.used) {
      this.#groups?.noteReplaced(plan.kind === 'held' ? plan.held.record.id : plan.id, plan.used.replacements)
    }
    try {
      await (plan.kind === 'attempt' ? this.#attempts.untilOneCounts(plan) : this.#settleWithoutRun(plan))
    } catch (error) {
      this.#fail(error)
    } finally {
      this.#giveBack(this.#slots)
    }
  }

  async #settleWithoutRun(plan: Exclude<PlannedRollout, PlannedAttempt>): Promise<void> {
    if (plan.kind === 'held') {
      await this.#settleOrHold(plan.held, plan)
    } else {
      // Every rollout in the journal has a start.
      this.#options.journal.append(attemptStart(plan.record, plan.record.timing.startedAt, null))
      await this.#settle([{ record: plan.record, leaf: null }])
    }
  }

  #fail(error: unknown): void {
    this.#failure ??= error
    this.stop(MillraceError.from(error, 'internal'))
  }

  #giveBack(permits: Semaphore): void {
    this.#work -= 1
    permits.release()
    if (this.#work === 0) this.#onIdle?.()
  }

  readonly #settleOrHold = async (ended: HeldRollout, asked: RolloutTerms): Promise<void> => {
    if (!this.#groups || asked.isScored === false) return await this.#settle([ended])
    const { record, leaf } = ended
    await this.#endMember({ record, leaf, terms: termsOf(asked) }, this.#groups)
  }

  async #endMember(member: HeldMember, groups: GroupCollector): Promise<void> {
    const decision = groups.add(member)
    if (!decision) {
      this.#options.journal.append(attemptEnd(member, true))
      return
    }
    if (decision.kind === 'replace') return await this.#replace(decision.failed, member)
    if (decision.kind === 'void') voidGroup(decision.members)
    else await this.#scoreGroup(decision.members, member.terms.task)
    if (this.#stopping.signal.aborted) this.#hasLeftWork = true
    else await this.#settle(decision.members)
  }

  async #replace(failed: readonly HeldMember[], last: HeldMember): Promise<void> {
    const { journal, mayStartOver } = this.#options
    // Journalled before the first of them runs: if that is cut off, what has ended stays ended.
    journal.appendAll(failed.map((each) => attemptEnd(each, false)))
    if (!failed.includes(last)) journal.append(attemptEnd(last, true))
    // One after another: they share the place of the member that ended last.
    for (const { record, terms } of failed) {
      if (this.#admission.signal.aborted || (mayStartOver && !mayStartOver())) {
        this.#hasLeftWork = true
        return
      }
      const { id, sample, attempt } = record
      await this.#attempts.untilOneCounts({ kind: 'attempt', id, sample, attempt: attempt + 1, ...terms })
    }
  }

  async #scoreGroup(members: readonly HeldRollout[], task: RolloutJob['task']): Promise<void> {
    const scored = members.filter(({ record }) => outcomes[record.outcome].scored)
    const { executor, group, onGroupScore } = this.#options
    if (scored.length === 0 || !group.isScored) return
    onGroupScore?.()
    const records = scored.map(({ record }) => record)
    try {
      const scores = await executor.scoreGroup({ task, members: records }, this.#stopping.signal)
      applyGroupScores(records, scores)
    } catch (thrown) {
      if (this.#stopping.signal.aborted) return
      const error = MillraceError.from(thrown, 'reward_failed').toWire()
      for (const record of records) Object.assign(record, failedReward(record, error))
    }
  }

  /** A group is settled whole or not at all, and its place is free as soon as the result is on its way. */
  async #settle(ended: readonly HeldRollout[]): Promise<void> {
    await this.#settling.acquire()
    void this.#report(ended)
  }

  /** Holds a permit to settle until the results are on disk and taken. Never rejects. */
  async #report(ended: readonly HeldRollout[]): Promise<void> {
    this.#work += 1
    try {
      const { journal, onSettled, isAwaited } = this.#options
      journal.appendAll(ended.map(rolloutEnd))
      await (isAwaited ? journal.durable() : journal.durableSoon())
      for (const { record } of ended) await onSettled(record)
    } catch (error) {
      this.#fail(error)
    } finally {
      this.#giveBack(this.#settling)
    }
  }
}

/** Without `isScored`: a member of a group is always scored. */
function termsOf({ task, sampling, recording, opening }: RolloutTerms): RolloutTerms {
  return { task, ...(sampling && { sampling }), ...(recording && { recording }), ...(opening && { opening }) }
}
