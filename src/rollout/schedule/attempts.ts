import { type ErrorCode, MillraceError } from '../../errors/index.ts'
import { AbortSource } from '../../kit/index.ts'
import { type Outcome, outcomes, type RolloutRecord } from '../../schema/index.ts'
import type { AttemptSpending, Journal, RunReader } from '../../store/index.ts'
import { continued, type Recording } from '../recording/recording.ts'
import { recordWithoutRun } from '../result/record.ts'
import type { AttemptResult, Executor, RolloutJob } from './executor.ts'
import { attemptAbandoned, attemptEnd, attemptEvent, attemptStart, type HeldRollout } from './journal-entries.ts'

export interface PlannedAttempt extends Omit<RolloutJob, 'seed'> {
  readonly kind: 'attempt'
  /** Present if the attempt goes on where an earlier launch was cut off. An attempt that starts over has none. */
  readonly resumed?: Recording
  readonly used?: UsedRetries
}

/** How many of a rollout's retries and replacements earlier launches have used up; this launch has the rest. */
export interface UsedRetries {
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
  readonly onAttemptLost?: (lost: LostAttempt) => void
}

interface AttemptLife {
  /** Once it aborts, no attempt counts any more. */
  readonly stopping: AbortSignal
  /** Once it aborts, a failed attempt does not start over: the next launch does that. */
  readonly draining: AbortSignal
  /** Takes the attempt that counts; the promise it returns is awaited. */
  readonly onEnd: (ended: HeldRollout, plan: PlannedAttempt) => Promise<void>
  /** Takes a rollout that is left to the next launch, with the number of its next attempt. */
  readonly onLeft: (left: PlannedAttempt) => void
}

type RecordedAttempt = Extract<AttemptResult, { kind: 'ended' }>
type LostAttempt = Extract<AttemptResult, { kind: 'lost' }>

/** Makes attempts at each rollout that runs until one counts. */
export class RolloutAttempts {
  readonly #options: AttemptOptions
  readonly #life: AttemptLife
  readonly #running = new Map<string, AbortSource>()

  constructor(options: AttemptOptions, life: AttemptLife) {
    this.#options = options
    this.#life = life
  }

  get active(): number {
    return this.#running.size
  }

  /** Ends one running rollout, as `cancelled`; false if no rollout of that id runs. */
  cancel(id: string, reason: MillraceError): boolean {
    const source = this.#running.get(id)
    source?.abort(reason)
    return source !== undefined
  }

  abortAll(reason: MillraceError): void {
    for (const source of this.#running.values()) source.abort(reason)
  }

  /** Gives the attempt that counts to `onEnd`. None counts if the run is stopped first, or drains when one fails. */
  async untilOneCounts(plan: PlannedAttempt): Promise<void> {
    const { executor, retries, onAttemptStart } = this.#options
    // One source for all attempts, so that a cancel is seen whenever it comes.
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
          // What an earlier launch recorded of the rollout stays in the journal, but not in its record: that has its cost only.
          const spent = isResumed(job) ? await this.#spending(job) : undefined
          ended = this.#endWithoutRun(job, { outcome: 'cancelled', error: refusal, spent })
          break
        }
        let result: AttemptResult | BrokenAttempt | undefined
        try {
          result = await executor.run(job, signal)
        } catch (error) {
          // An executor that was told to end may throw: the abort is the reason.
          if (!signal.aborted) result = { kind: 'broken', error: unlessRunEnds(error) }
        }
        if (this.#life.stopping.aborted) return
        if (result?.kind === 'ended') {
          // The journal has what earlier launches spent as well, whether this one repeated it or not.
          if (isResumed(job)) Object.assign(result.record, await this.#spending(job))
          ended = this.#decideOn(result, { isLast: retriesLeft === 0, signal })
          retriesLeft -= 1
          if (!ended && this.#life.draining.aborted) return this.#life.onLeft({ ...plan, attempt: attempt + 1 })
        } else {
          ended = await this.#decideWithoutRecord(job, result, signal)
        }
        attempt += 1
      }
    } finally {
      this.#running.delete(plan.id)
    }
    await this.#life.onEnd(ended, plan)
  }

  #jobOf({ kind: _kind, used: _used, resumed, ...plan }: PlannedAttempt, attempt: number): RolloutJob {
    const job = { ...plan, attempt, seed: this.#options.seedOf(plan.id, attempt) }
    // Only the attempt that the plan names is resumed.
    return resumed && attempt === plan.attempt ? { ...job, recording: continued(resumed, plan.recording) } : job
  }

  /** The end of the rollout by this attempt; undefined if there is to be another attempt. */
  #decideOn(
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

  /** Like `#decideOn`, for an attempt that left no record; its spending is read from its journal. */
  async #decideWithoutRecord(
    job: RolloutJob,
    result: Exclude<AttemptResult, RecordedAttempt> | BrokenAttempt | undefined,
    signal: AbortSignal,
  ): Promise<HeldRollout | undefined> {
    if (result?.kind === 'lost' && !signal.aborted) return this.#decideOnLost(job, result)
    const spent = await this.#spentOn(job)
    // The rollout stays unfinished, as all that still run.
    if (this.#life.stopping.aborted) return undefined
    const end = (outcome: Outcome, error: MillraceError): HeldRollout =>
      this.#endWithoutRun(job, { outcome, error, spent })
    if (!result || signal.aborted) return end('cancelled', MillraceError.from(signal.reason, 'cancelled'))
    if (result.kind === 'broken') return end('env_error', result.error)
    const { why } = result
    this.#options.journal.append(attemptAbandoned(job, why))
    // An attempt that did not repeat what it was forked from, rather than its own journal, would not do so the next time either.
    return isResumed(job) ? undefined : end('agent_error', new MillraceError('replay_diverged', why))
  }

  async #decideOnLost(job: RolloutJob, lost: LostAttempt): Promise<HeldRollout | undefined> {
    const { id } = job
    const { why, disposition } = lost
    this.#options.journal.append(attemptEvent(job, 'worker-lost', { why }))
    this.#options.onAttemptLost?.(lost)
    const spending = this.#spentOn(job)
    if (disposition === 'again') {
      // Not awaited: the cost is in the journal in any case.
      spending.catch(() => {})
      return undefined
    }
    const spent = await spending
    if (this.#life.stopping.aborted) return undefined
    const error = new MillraceError('worker_lost', why, { data: { rollout: id } })
    return this.#endWithoutRun(job, { outcome: disposition, error, spent })
  }

  async #spentOn(job: RolloutJob): Promise<AttemptSpending> {
    const { id, attempt } = job
    const spent = await this.#spending(job)
    this.#options.onAttemptEnd({ id, attempt, cost: spent.cost })
    return spent
  }

  async #spending({ id, attempt }: RolloutJob): Promise<AttemptSpending> {
    await this.#options.journal.durable()
    return this.#options.reader.spending(id, attempt)
  }

  #endWithoutRun(
    { id, attempt, sample, task: { index, id: taskId } }: RolloutJob,
    end: { readonly outcome: Outcome; readonly error: MillraceError; readonly spent: AttemptSpending | undefined },
  ): HeldRollout {
    const task = { index, id: taskId }
    const record = recordWithoutRun({ ...this.#options.labels, id, attempt, sample, task, ...end })
    // The attempt may have ended before its start was journalled.
    this.#options.journal.append(attemptStart(record, record.timing.startedAt, null))
    return { record, leaf: null }
  }
}

function isResumed({ recording }: RolloutJob): boolean {
  return recording?.purpose === 'resume'
}

/** An attempt failed in a way nobody foresaw: that ends its own rollout, and no other one. */
interface BrokenAttempt {
  readonly kind: 'broken'
  readonly error: MillraceError
}

/** The place where rollouts run is gone, or nothing can be recorded any more: no other rollout could go on. */
const endsRun = new Set<ErrorCode>(['worker_lost', 'closed', 'store_failed', 'disk_full', 'run_gone'])

function unlessRunEnds(thrown: unknown): MillraceError {
  const error = MillraceError.from(thrown, 'internal')
  if (endsRun.has(error.code)) throw error
  return error
}
