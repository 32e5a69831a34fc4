import { setImmediate as nextTurn } from 'node:timers/promises'
import { MillraceError } from '../errors/index.ts'
import { AbortSource, Semaphore } from '../kit/index.ts'
import { outcomes, type Outcome, type RolloutRecord } from '../schema/index.ts'
import type { Journal, RunReader } from '../store/index.ts'
import { brokenAttempt, type BrokenAttempt } from './broken-attempt.ts'
import { attemptEnd, rolloutEnd } from './end-entries.ts'
import type { Executor } from './executor.ts'
import { GroupKeeper, holdsGroups, type HeldMember, type GroupRules, type HeldRollout } from './group-keeper.ts'
import type { AttemptResult, RolloutJob, RolloutTerms } from './job.ts'
import { journalledSpending, type AttemptSpending } from './journalled-spending.ts'
import { recordWithoutRun, startWithoutRun } from './record-without-run.ts'
import { applyGroupScores, voidGroup } from './settle-group.ts'

/** A rollout that is due, and how far an earlier sitting had come with it. */
export type PlannedRollout =
  | PlannedAttempt
  /** It had ended and only waits for its group. */
  | (RolloutTerms & { readonly kind: 'held'; readonly held: HeldRollout })
  /** It cannot run, and this says why. */
  | { readonly kind: 'settled'; readonly record: RolloutRecord }

export interface PlannedAttempt extends Omit<RolloutJob, 'seed'> {
  readonly kind: 'attempt'
}

export interface SchedulerOptions {
  /** What the records of rollouts say that left none themselves. */
  readonly labels: Pick<RolloutRecord, 'environment' | 'model'>
  readonly executor: Executor
  readonly journal: Journal
  /** Of what the journal wrote: it says what an attempt spent that left no record. */
  readonly reader: RunReader
  readonly concurrency: number
  /** How often a rollout may start over after an outcome whose rule is `retry`. */
  readonly retries: number
  readonly group: GroupRules
  readonly seedOf: (id: string, attempt: number) => number
  /** Called when an attempt is about to run; why it must not, if it was cancelled on its way there or since the last one. */
  readonly onAttemptStart?: (rollout: string) => MillraceError | undefined
  /** Takes a rollout whose result is durable. While too many are waiting to be taken, nothing new starts. */
  readonly onSettled: (record: RolloutRecord) => Promise<void> | void
  /** Hears of every attempt as it ends, however it does, before its result is durable: what was spent is spent. */
  readonly onAttemptEnd: (ended: Pick<RolloutRecord, 'id' | 'attempt' | 'cost'>) => void
  /** Nothing new starts any more, for whatever reason: a source of plans need not wait for more of them. */
  readonly onAdmissionEnd: () => void
  /** Hears of every attempt that went down with its worker. */
  readonly onAttemptLost?: (lost: Extract<AttemptResult, { kind: 'lost' }>) => void
}

type RecordedAttempt = Extract<AttemptResult, { kind: 'ended' }>
type LostAttempt = Extract<AttemptResult, { kind: 'lost' }>

/** Results that have ended but are not yet durable and taken. */
const maxUnsettled = 256

/** A burst of starts gives the loop back after this long, so that 2,048 rollouts do not begin in one turn of it. */
const startBurstMs = 4

/**
 * Admits rollouts as places become free, runs each to its end, repeats what its outcome's rule says, settles groups, and
 * reports every result once it is durable. It knows nothing of where rollouts run.
 */
export class Scheduler {
  readonly #options: SchedulerOptions
  readonly #places: Semaphore
  readonly #groups: GroupKeeper | undefined
  readonly #settling = new Semaphore(maxUnsettled)
  readonly #running = new Map<string, AbortSource>()
  readonly #admission = new AbortSource()
  readonly #stopping = new AbortController()
  /** Rollouts that have not ended, and results that have not been taken. */
  #work = 0
  #onIdle: (() => void) | undefined
  #failure: unknown

  constructor(options: SchedulerOptions) {
    this.#options = options
    this.#places = new Semaphore(options.concurrency)
    const { group, retries } = options
    this.#groups = holdsGroups(group) ? new GroupKeeper(group, retries) : undefined
  }

  get active(): number {
    return this.#running.size
  }

  /** Resolves when everything planned has ended (true), or what was running when admission stopped (false). */
  async run(plans: AsyncIterable<PlannedRollout>): Promise<boolean> {
    const { signal } = this.#admission
    const { journal } = this.#options
    let hasStartedAll = false
    try {
      let burstStartedAt = performance.now()
      for await (const plan of plans) {
        if (signal.aborted) break
        if (!this.#places.tryAcquire()) await this.#places.acquire(signal)
        this.#carryOut(plan)
        if (journal.pressure >= 1) await journal.durable()
        if (performance.now() - burstStartedAt > startBurstMs) {
          await nextTurn()
          burstStartedAt = performance.now()
        }
      }
      hasStartedAll = !signal.aborted
    } catch (error) {
      // A source that is told to stop may put that in its own words.
      if (!signal.aborted) this.#failure ??= error
    }
    while (this.#work > 0) await this.#idle()
    if (this.#failure) throw this.#failure
    const hasRunAll = hasStartedAll && !this.#stopping.signal.aborted
    if (hasRunAll && this.#groups && this.#groups.open > 0) {
      throw new MillraceError('internal', `${this.#groups.open} groups never got all their members; please report this`)
    }
    return hasRunAll
  }

  /** Starts nothing new. */
  drain(): void {
    if (this.#admission.signal.aborted) return
    this.#admission.abort(new MillraceError('closed', 'the run is draining'))
    this.#options.onAdmissionEnd()
  }

  /** Cancels what runs; those rollouts stay unfinished, to be resumed. */
  stop(reason: MillraceError): void {
    if (this.#stopping.signal.aborted) return
    this.#stopping.abort(reason)
    this.drain()
    for (const source of this.#running.values()) source.abort(reason)
  }

  /** Ends one rollout that runs, as `cancelled`; false if none of that id does. */
  cancel(id: string, reason: MillraceError): boolean {
    const source = this.#running.get(id)
    source?.abort(reason)
    return source !== undefined
  }

  /** It holds a place while it runs. What goes wrong here is the run's failure. */
  #carryOut(plan: PlannedRollout): void {
    this.#work += 1
    const carriedOut = plan.kind === 'attempt' ? this.#runAndSettle(plan) : this.#settleWithoutRun(plan)
    // Chained, not awaited: another async frame would be held for as long as the rollout takes.
    carriedOut.then(this.#onPlaceFree, this.#onFailure)
  }

  readonly #onPlaceFree = (): void => this.#giveBack(this.#places)

  readonly #onFailure = (error: unknown): void => {
    this.#fail(error)
    this.#giveBack(this.#places)
  }

  async #settleWithoutRun(plan: Exclude<PlannedRollout, PlannedAttempt>): Promise<void> {
    if (plan.kind === 'held') {
      await this.#settleOrHold(plan.held, plan)
    } else {
      this.#options.journal.append(startWithoutRun(plan.record))
      await this.#settle([{ record: plan.record, leaf: null }])
    }
  }

  #fail(error: unknown): void {
    this.#failure ??= error
    this.stop(MillraceError.from(error, 'internal'))
  }

  /** Gives back what it held, and lets the run end if it was the last. */
  #giveBack(permits: Semaphore): void {
    this.#work -= 1
    permits.release()
    if (this.#work === 0) this.#onIdle?.()
  }

  #idle(): Promise<void> {
    return new Promise((resolve) => {
      this.#onIdle = resolve
    })
  }

  /** Attempts until one counts, which is then settled or held; none does if the run was stopped first. */
  async #runAndSettle(plan: PlannedAttempt): Promise<void> {
    const { executor, retries, onAttemptStart } = this.#options
    // One for all attempts, so that a cancel is heard whenever it comes.
    const source = new AbortSource()
    const { signal } = source
    let ended: HeldRollout | undefined
    this.#running.set(plan.id, source)
    try {
      let { attempt } = plan
      let retriesLeft = retries
      while (!ended) {
        if (this.#stopping.signal.aborted) return
        const job = this.#jobOf(plan, attempt)
        const refusal = onAttemptStart?.(plan.id)
        if (refusal) {
          // What an earlier sitting has of it stays in the journal, and is not part of its record.
          ended = this.#endWithoutRun(job, { outcome: 'cancelled', error: refusal })
          break
        }
        let result: AttemptResult | BrokenAttempt | undefined
        try {
          result = await executor.run(job, signal)
        } catch (error) {
          // If it was told to end, that is all there is to say.
          if (!signal.aborted) result = brokenAttempt(error)
        }
        if (this.#stopping.signal.aborted) return
        if (result?.kind === 'ended') {
          ended = this.#verdictOn(result, { isLast: retriesLeft === 0, signal })
          retriesLeft -= 1
        } else {
          ended = await this.#verdictWithoutRecord(job, result, signal)
        }
        attempt += 1
      }
    } finally {
      this.#running.delete(plan.id)
    }
    const ending = this.#settleOrHold(ended, plan)
    if (ending) await ending
  }

  #jobOf({ kind: _kind, ...plan }: PlannedAttempt, attempt: number): RolloutJob {
    const job = { ...plan, attempt, seed: this.#options.seedOf(plan.id, attempt) }
    if (attempt === plan.attempt) return job
    // What was recorded is that of the attempt it was planned with.
    const { journalled: _journalled, children: _children, judgeCalls: _judgeCalls, ...afresh } = job
    return afresh
  }

  /** What an attempt came to, if that is how its rollout ends; undefined if there is to be another. */
  #verdictOn(
    result: RecordedAttempt,
    { isLast, signal }: { isLast: boolean; signal: AbortSignal },
  ): HeldRollout | undefined {
    const { record } = result
    const isFinal = outcomes[record.outcome].rule !== 'retry' || isLast || signal.aborted
    this.#options.onAttemptEnd(record)
    if (isFinal) return result
    this.#endAttempt(result, false)
    return undefined
  }

  /** The same of an attempt that left no record; what it spent is read from its journal. */
  async #verdictWithoutRecord(
    job: RolloutJob,
    result: Exclude<AttemptResult, RecordedAttempt> | BrokenAttempt | undefined,
    signal: AbortSignal,
  ): Promise<HeldRollout | undefined> {
    if (result?.kind === 'lost' && !signal.aborted) return this.#verdictOnLost(job, result)
    const spent = await this.#spentOn(job)
    // It stays unfinished, as all that runs.
    if (this.#stopping.signal.aborted) return undefined
    const end = (outcome: Outcome, error: MillraceError): HeldRollout =>
      this.#endWithoutRun(job, { outcome, error, spent })
    if (!result || signal.aborted) return end('cancelled', MillraceError.from(signal.reason, 'cancelled'))
    if (result.kind === 'broken') return end('env_error', result.error)
    const { why } = result
    this.#note(job.id, job.attempt, 'attempt-abandoned', { why })
    // If it was not its own journal that it did not repeat, another attempt would not either.
    return job.journalled ? undefined : end('agent_error', new MillraceError('replay_diverged', why))
  }

  async #verdictOnLost(job: RolloutJob, lost: LostAttempt): Promise<HeldRollout | undefined> {
    const { id, attempt } = job
    const { why, verdict } = lost
    this.#note(id, attempt, 'worker-lost', { why })
    this.#options.onAttemptLost?.(lost)
    const spending = this.#spentOn(job)
    if (verdict === 'again') {
      // Not waited for: a pool that drains lets it come again only at once. What it cost is in the journal in any case.
      spending.catch(ignore)
      return undefined
    }
    const spent = await spending
    if (this.#stopping.signal.aborted) return undefined
    const error = new MillraceError('worker_lost', why, { data: { rollout: id } })
    return this.#endWithoutRun(job, { outcome: verdict, error, spent })
  }

  /** What an attempt cost that left no record; whoever counts is told. */
  async #spentOn({ id, attempt }: RolloutJob): Promise<AttemptSpending> {
    await this.#options.journal.durable()
    const spent = journalledSpending(this.#options.reader, id, attempt)
    this.#options.onAttemptEnd({ id, attempt, cost: spent.cost })
    return spent
  }

  /** The end of a rollout that left no record itself. */
  #endWithoutRun(
    { id, attempt, sample, task: { index, id: taskId } }: RolloutJob,
    end: { readonly outcome: Outcome; readonly error: MillraceError; readonly spent?: AttemptSpending },
  ): HeldRollout {
    const task = { index, id: taskId }
    const record = recordWithoutRun({ ...this.#options.labels, id, attempt, sample, task, ...end })
    // It may never have got so far as to say that it began.
    this.#options.journal.append(startWithoutRun(record))
    return { record, leaf: null }
  }

  #settleOrHold(ended: HeldRollout, asked: RolloutTerms): Promise<void> | undefined {
    if (!this.#groups) return this.#settle([ended])
    const { record, leaf } = ended
    return this.#endMember({ record, leaf, terms: termsOf(asked) }, this.#groups)
  }

  async #endMember(member: HeldMember, groups: GroupKeeper): Promise<void> {
    const verdict = groups.add(member)
    if (verdict?.kind === 'replace') {
      // One after another: they share the place of the member that ended last.
      for (const each of verdict.failed) await this.#replace(each)
      return
    }
    if (!verdict) {
      this.#endAttempt(member, true)
      return
    }
    if (verdict.kind === 'void') voidGroup(verdict.members)
    else await this.#scoreGroup(verdict.members, member.terms.task)
    if (this.#stopping.signal.aborted) return
    await this.#settle(verdict.members)
  }

  async #replace(failed: HeldMember): Promise<void> {
    this.#endAttempt(failed, false)
    const { id, sample, attempt } = failed.record
    await this.#runAndSettle({ kind: 'attempt', id, sample, attempt: attempt + 1, ...failed.terms })
  }

  async #scoreGroup(members: readonly HeldRollout[], task: RolloutJob['task']): Promise<void> {
    const scored = members.filter(({ record }) => outcomes[record.outcome].scored)
    if (scored.length === 0 || !this.#options.group.isScored) return
    const records = scored.map(({ record }) => record)
    try {
      const scores = await this.#options.executor.scoreGroup({ task, members: records }, this.#stopping.signal)
      applyGroupScores(records, scores)
    } catch (thrown) {
      if (this.#stopping.signal.aborted) return
      const error = MillraceError.from(thrown, 'reward_failed').toWire()
      for (const record of records) {
        Object.assign(record, { outcome: 'reward_error', truncated: false, reward: null, error })
      }
    }
  }

  /**
   * All at once, in one transaction: a group is settled whole or not at all.
   * The place is free as soon as the result is on its way; its commit is shared with the next rollouts' turns.
   */
  #settle(ended: readonly HeldRollout[]): Promise<void> | undefined {
    if (!this.#settling.tryAcquire()) return this.#settling.acquire().then(() => void this.#report(ended))
    void this.#report(ended)
    return undefined
  }

  /** Holds a permit to settle until the results are durable and taken. Never rejects. */
  async #report(ended: readonly HeldRollout[]): Promise<void> {
    this.#work += 1
    try {
      const { journal, onSettled } = this.#options
      journal.appendAll(ended.map(rolloutEnd))
      await journal.durableSoon()
      for (const { record } of ended) {
        const taken = onSettled(record)
        if (taken) await taken
      }
    } catch (error) {
      this.#fail(error)
    } finally {
      this.#giveBack(this.#settling)
    }
  }

  #endAttempt(ended: HeldRollout, isHeld: boolean): void {
    this.#options.journal.append(attemptEnd(ended, isHeld))
  }

  #note(rollout: string, attempt: number, name: string, data: Record<string, string>): void {
    this.#options.journal.append({ kind: 'event', rollout, attempt, name, at: Date.now(), data: JSON.stringify(data) })
  }
}

/** Without what an earlier sitting recorded, which is large and holds for one attempt only. */
function termsOf({ task, sampling, cassette, opening }: RolloutTerms): RolloutTerms {
  return { task, ...(sampling && { sampling }), ...(cassette && { cassette }), ...(opening && { opening }) }
}

function ignore(): void {}
