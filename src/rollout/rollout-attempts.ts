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

export interface PlannedAttempt extends Omit<RolloutJob, 'seed'> {
  readonly kind: 'attempt'
  /** None if not given. */
  readonly used?: UsedTries
}

/** What earlier sittings have used up of how often a rollout may start over: its retries go on from there. */
export interface UsedTries {
  /** Since it last took the place of a failed member of its group, if it did. */
  readonly retries: number
  readonly replacements: number
}

export interface AttemptOptions {
  /** What the records of rollouts say that left none themselves. */
  readonly labels: Pick<RolloutRecord, 'environment' | 'model'>
  readonly executor: Executor
  readonly journal: Journal
  /** Of what the journal wrote: it says what an attempt spent that left no record. */
  readonly reader: RunReader
  /** How often a rollout may start over after an outcome whose rule is `retry`. */
  readonly retries: number
  /** Whether there is money left for that; there is if not given. */
  readonly mayStartOver?: () => boolean
  readonly seedOf: (id: string, attempt: number) => number
  /** Called when an attempt is about to run; why it must not, if it was cancelled on its way there or since the last one. */
  readonly onAttemptStart?: (rollout: string) => MillraceError | undefined
  /** Hears of every attempt as it ends, however it does, before its result is durable: what was spent is spent. */
  readonly onAttemptEnd: (ended: Pick<RolloutRecord, 'id' | 'attempt' | 'cost'>) => void
  /** Hears of every attempt that went down with its worker. */
  readonly onAttemptLost?: (lost: LostAttempt) => void
}

/** What the run says to its attempts, and hears of them. */
interface AttemptLife {
  /** Once it aborts, no attempt counts any more. */
  readonly stopping: AbortSignal
  /** Once it aborts, what fails does not start over: the next sitting does that. */
  readonly draining: AbortSignal
  /** Takes the attempt that counts; what it returns is waited for. */
  readonly onEnd: (ended: HeldRollout, plan: PlannedAttempt) => Promise<void> | undefined
  /** Takes a rollout that is left to the next sitting, with the attempt that is next. */
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
  /** By the id of the rollout. */
  readonly #running = new Map<string, AbortSource>()

  constructor(options: AttemptOptions, life: AttemptLife) {
    this.#options = options
    this.#life = life
  }

  /** Rollouts that run. */
  get active(): number {
    return this.#running.size
  }

  /** Ends one rollout that runs, as `cancelled`; false if none of that id does. */
  cancel(id: string, reason: MillraceError): boolean {
    const source = this.#running.get(id)
    source?.abort(reason)
    return source !== undefined
  }

  /** Tells all of them to end. */
  abortAll(reason: MillraceError): void {
    for (const source of this.#running.values()) source.abort(reason)
  }

  /**
   * Attempts at this rollout until one counts, which `onEnd` is told; none does if the run is stopped first, or drains as one
   * fails. Ends when `onEnd` is done with it: chained to this, that would be another frame held for as long as the rollout takes.
   */
  async untilOneCounts(plan: PlannedAttempt): Promise<void> {
    const { executor, retries, onAttemptStart } = this.#options
    // One for all attempts, so that a cancel is heard whenever it comes.
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
    // What was recorded is that of the attempt it was planned with.
    return recorded && attempt === plan.attempt ? { ...job, recorded } : job
  }

  /** What an attempt came to, if that is how its rollout ends; undefined if there is to be another. */
  #verdictOn(
    result: RecordedAttempt,
    { isLast, signal }: { isLast: boolean; signal: AbortSignal },
  ): HeldRollout | undefined {
    const { record } = result
    const { onAttemptEnd, mayStartOver } = this.#options
    // First: what it cost may have been the last that may be spent.
    onAttemptEnd(record)
    if (outcomes[record.outcome].rule !== 'retry' || isLast || signal.aborted) return result
    if (mayStartOver && !mayStartOver()) return result
    this.#options.journal.append(attemptEnd(result, false))
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
    if (this.#life.stopping.aborted) return undefined
    const end = (outcome: Outcome, error: MillraceError): HeldRollout =>
      this.#endWithoutRun(job, { outcome, error, spent })
    if (!result || signal.aborted) return end('cancelled', MillraceError.from(signal.reason, 'cancelled'))
    if (result.kind === 'broken') return end('env_error', result.error)
    const { why } = result
    this.#options.journal.append(attemptAbandoned(job, why))
    // If it was not its own journal that it did not repeat, another attempt would not either.
    return job.recorded ? undefined : end('agent_error', new MillraceError('replay_diverged', why))
  }

  async #verdictOnLost(job: RolloutJob, lost: LostAttempt): Promise<HeldRollout | undefined> {
    const { id } = job
    const { why, verdict } = lost
    this.#options.journal.append(attemptEvent(job, 'worker-lost', { why }))
    this.#options.onAttemptLost?.(lost)
    const spending = this.#spentOn(job)
    if (verdict === 'again') {
      // Not waited for: a pool that drains lets it come again only at once. What it cost is in the journal in any case.
      spending.catch(ignore)
      return undefined
    }
    const spent = await spending
    if (this.#life.stopping.aborted) return undefined
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
}

function ignore(): void {}
