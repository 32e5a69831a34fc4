import { MillraceError } from '../errors/index.ts'
import { AbortSource } from '../kit/index.ts'
import { outcomes, type Outcome, type RolloutRecord } from '../schema/index.ts'
import type { Journal, RunReader } from '../store/index.ts'
import { attemptAbandoned, attemptEvent } from './event-entries.ts'
import { brokenAttempt, type BrokenAttempt } from './broken-attempt.ts'
import { attemptEnd } from './end-entries.ts'
import type { Executor } from './executor.ts'
import type { HeldRollout } from './group-keeper.ts'
import type { AttemptResult, RolloutJob } from './job.ts'
import { journalledSpending, type AttemptSpending } from './journalled-spending.ts'
import { recordWithoutRun, startWithoutRun } from './record-without-run.ts'
import { recordedSpending } from './unrepeated-work.ts'

export interface PlannedAttempt extends Omit<RolloutJob, 'seed'> {
  readonly kind: 'attempt'
  /** No tries if not given. */
  readonly used?: UsedTries
}

/** How many of a rollout's retries and replacements earlier sittings have used up; this sitting has the rest. */
export interface UsedTries {
  /** Counted since the rollout last replaced a failed member of its group, if it did. */
  readonly retries: number
  readonly replacements: number
}

export interface AttemptOptions {
  /** Labels for the records of rollouts that left none themselves. */
  readonly labels: Pick<RolloutRecord, 'environment' | 'model'>
  readonly executor: Executor
  readonly journal: Journal
  /** Reads what the journal wrote, for the spending of attempts that left no record. */
  readonly reader: RunReader
  /** How often a rollout may start over after an outcome whose rule is `retry`. */
  readonly retries: number
  /** Whether there is money left to start over; true if not given. */
  readonly mayStartOver?: () => boolean
  readonly seedOf: (id: string, attempt: number) => number
  /** Called when an attempt is about to run. Returns why it must not, if the rollout was cancelled before. */
  readonly onAttemptStart?: (rollout: string) => MillraceError | undefined
  /** Called for every attempt as it ends, however it does, and before its result is durable: what was spent is spent. */
  readonly onAttemptEnd: (ended: Pick<RolloutRecord, 'id' | 'attempt' | 'cost'>) => void
  /** Called for every attempt that went down with its worker. */
  readonly onAttemptLost?: (lost: LostAttempt) => void
}

/** How the run steers its attempts, and hears of them. */
interface AttemptLife {
  /** Once it aborts, no attempt counts any more. */
  readonly stopping: AbortSignal
  /** Once it aborts, a failed attempt does not start over: the next sitting does that. */
  readonly draining: AbortSignal
  /** Takes the attempt that counts; the promise it returns is awaited. */
  readonly onEnd: (ended: HeldRollout, plan: PlannedAttempt) => Promise<void> | undefined
  /** Takes a rollout that is left to the next sitting, with the number of its next attempt. */
  readonly onLeft: (left: PlannedAttempt) => void
}

type RecordedAttempt = Extract<AttemptResult, { kind: 'ended' }>
type LostAttempt = Extract<AttemptResult, { kind: 'lost' }>

/**
 * The attempts at each rollout that runs: another one where an outcome's rule says so, a worker was lost or the journal was
 * not repeated, until one counts.
 */
export class RolloutAttempts {
  readonly #options: AttemptOptions
  readonly #life: AttemptLife
  /** By rollout id. */
  readonly #running = new Map<string, AbortSource>()

  constructor(options: AttemptOptions, life: AttemptLife) {
    this.#options = options
    this.#life = life
  }

  /** How many rollouts run. */
  get active(): number {
    return this.#running.size
  }

  /** Ends one running rollout, as `cancelled`; false if no rollout of that id runs. */
  cancel(id: string, reason: MillraceError): boolean {
    const source = this.#running.get(id)
    source?.abort(reason)
    return source !== undefined
  }

  /** Tells all running rollouts to end. */
  abortAll(reason: MillraceError): void {
    for (const source of this.#running.values()) source.abort(reason)
  }

  /**
   * Makes attempts at this rollout until one counts, and gives that to `onEnd`. No attempt counts if the run is stopped first, or
   * drains when one fails. Awaits `onEnd` here: the caller would need another frame, held for as long as the rollout takes.
   */
  async untilOneCounts(plan: PlannedAttempt): Promise<void> {
    const { executor, retries, onAttemptStart } = this.#options
    // One source for all attempts, so that a cancel is heard whenever it comes.
    const source = new AbortSource()
    const { signal } = source
    let ended: HeldRollout | undefined
    this.#running.set(plan.id, source)
    try {
      let { attempt } = plan
      let retriesLeft = Math.max(0, retries - (plan.used?.retries ?? 0))
      while (!ended) {
        if (this.#life.stopping.aborted) return
        const job = this.#jobOf(plan, attempt)
        const refusal = onAttemptStart?.(plan.id)
        if (refusal) {
          // What an earlier sitting recorded of the rollout stays in the journal, but not in its record: that has its cost only.
          const spent = recordedSpending(job.recorded)
          ended = this.#endWithoutRun(job, { outcome: 'cancelled', error: refusal, spent })
          break
        }
        let result: AttemptResult | BrokenAttempt | undefined
        try {
          result = await executor.run(job, signal)
        } catch (error) {
          // An executor that was told to end may throw: the abort is the reason.
          if (!signal.aborted) result = brokenAttempt(error)
        }
        if (this.#life.stopping.aborted) return
        if (result?.kind === 'ended') {
          ended = this.#verdictOn(result, { isLast: retriesLeft === 0, signal })
          retriesLeft -= 1
          if (!ended && this.#life.draining.aborted) return this.#life.onLeft({ ...plan, attempt: attempt + 1 })
        } else {
          ended = await this.#verdictWithoutRecord(job, result, signal)
        }
        attempt += 1
      }
    } finally {
      this.#running.delete(plan.id)
    }
    const ending = this.#life.onEnd(ended, plan)
    if (ending) await ending
  }

  #jobOf({ kind: _kind, used: _used, recorded, ...plan }: PlannedAttempt, attempt: number): RolloutJob {
    const job = { ...plan, attempt, seed: this.#options.seedOf(plan.id, attempt) }
    // The recorded work belongs to the attempt that the plan names.
    return recorded && attempt === plan.attempt ? { ...job, recorded } : job
  }

  /** The end of the rollout by this attempt; undefined if there is to be another attempt. */
  #verdictOn(
    result: RecordedAttempt,
    { isLast, signal }: { isLast: boolean; signal: AbortSignal },
  ): HeldRollout | undefined {
    const { record } = result
    const { onAttemptEnd, mayStartOver } = this.#options
    // First, because the cost of this attempt may have used up the money that `mayStartOver` looks at.
    onAttemptEnd(record)
    if (outcomes[record.outcome].rule !== 'retry' || isLast || signal.aborted) return result
    if (mayStartOver && !mayStartOver()) return result
    this.#options.journal.append(attemptEnd(result, false))
    return undefined
  }

  /** Like `#verdictOn`, for an attempt that left no record; its spending is read from its journal. */
  async #verdictWithoutRecord(
    job: RolloutJob,
    result: Exclude<AttemptResult, RecordedAttempt> | BrokenAttempt | undefined,
    signal: AbortSignal,
  ): Promise<HeldRollout | undefined> {
    if (result?.kind === 'lost' && !signal.aborted) return this.#verdictOnLost(job, result)
    const spent = await this.#spentOn(job)
    // The rollout stays unfinished, as all that still run.
    if (this.#life.stopping.aborted) return undefined
    const end = (outcome: Outcome, error: MillraceError): HeldRollout =>
      this.#endWithoutRun(job, { outcome, error, spent })
    if (!result || signal.aborted) return end('cancelled', MillraceError.from(signal.reason, 'cancelled'))
    if (result.kind === 'broken') return end('env_error', result.error)
    const { why } = result
    this.#options.journal.append(attemptAbandoned(job, why))
    // An attempt that did not repeat a cassette, rather than its own journal, would not do so the next time either.
    return job.recorded ? undefined : end('agent_error', new MillraceError('replay_diverged', why))
  }

  async #verdictOnLost(job: RolloutJob, lost: LostAttempt): Promise<HeldRollout | undefined> {
    const { id } = job
    const { why, verdict } = lost
    this.#options.journal.append(attemptEvent(job, 'worker-lost', { why }))
    this.#options.onAttemptLost?.(lost)
    const spending = this.#spentOn(job)
    if (verdict === 'again') {
      // Not awaited: a draining pool takes the rollout again only at once. The cost is in the journal in any case.
      spending.catch(ignore)
      return undefined
    }
    const spent = await spending
    if (this.#life.stopping.aborted) return undefined
    const error = new MillraceError('worker_lost', why, { data: { rollout: id } })
    return this.#endWithoutRun(job, { outcome: verdict, error, spent })
  }

  /** What an attempt that left no record has cost; reports it to `onAttemptEnd`. */
  async #spentOn({ id, attempt }: RolloutJob): Promise<AttemptSpending> {
    await this.#options.journal.durable()
    const spent = journalledSpending(this.#options.reader, id, attempt)
    this.#options.onAttemptEnd({ id, attempt, cost: spent.cost })
    return spent
  }

  /** The end of a rollout that left no record itself. */
  #endWithoutRun(
    { id, attempt, sample, task: { index, id: taskId } }: RolloutJob,
    end: { readonly outcome: Outcome; readonly error: MillraceError; readonly spent: AttemptSpending | undefined },
  ): HeldRollout {
    const task = { index, id: taskId }
    const record = recordWithoutRun({ ...this.#options.labels, id, attempt, sample, task, ...end })
    // The attempt may have ended before its start was journalled.
    this.#options.journal.append(startWithoutRun(record))
    return { record, leaf: null }
  }
}

function ignore(): void {}
