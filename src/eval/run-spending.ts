import { workerLostEvent } from '../rollout/index.ts'
import { addUsage, emptyUsage, type RolloutRecord, type Usage } from '../schema/index.ts'
import type { RunReader, UnacceptedAttempt } from '../store/index.ts'
import { readJudgeCalls } from './replay/recording.ts'

/** What was spent on attempts that are no results: paid for, and in no figure of the results. */
export interface Spending {
  readonly attempts: number
  /** That of judges included. */
  readonly usage: Usage
  /** US dollars, as far as prices are known. */
  readonly costUsd: number
}

/** What one attempt has cost: by its record or, if it left none, by its journal. */
interface SpentAttempt extends Omit<Spending, 'attempts'> {
  readonly rollout: string
  readonly attempt: number
  readonly isOpen: boolean
}

/** What a run has cost, attempts that did not count included: a retry is paid for like anything else. */
export class RunSpending {
  /** Of attempts that an earlier sitting left open: what each had cost by then. At most as many as ran at once. */
  readonly #open = new Map<string, number>()
  #costUsd = 0

  /** US dollars, as far as prices are known. */
  get costUsd(): number {
    return this.#costUsd
  }

  /** An attempt has ended. What it had cost before it was cut off is part of what it cost. */
  add({ id, attempt, cost }: Pick<RolloutRecord, 'id' | 'attempt' | 'cost'>): void {
    const key = keyOf(id, attempt)
    this.#costUsd += (cost ?? 0) - (this.#open.get(key) ?? 0)
    this.#open.delete(key)
  }

  /** What earlier sittings spent on attempts that are no results. */
  addUnaccepted(reader: RunReader): void {
    for (const { rollout, attempt, isOpen, costUsd } of spentAttempts(reader)) {
      this.#costUsd += costUsd
      if (isOpen) this.#open.set(keyOf(rollout, attempt), costUsd)
    }
  }
}

/** Of attempts that do not count, and of those that have not come to their end yet. */
export function unacceptedSpending(reader: RunReader): { readonly discarded: Spending; readonly unfinished: Spending } {
  const discarded = { attempts: 0, usage: emptyUsage(), costUsd: 0 }
  const unfinished = { attempts: 0, usage: emptyUsage(), costUsd: 0 }
  for (const { isOpen, usage, costUsd } of spentAttempts(reader)) {
    const spending = isOpen ? unfinished : discarded
    spending.attempts += 1
    spending.costUsd += costUsd
    addUsage(spending.usage, usage)
  }
  return { discarded, unfinished }
}

function* spentAttempts(reader: RunReader): Generator<SpentAttempt, void, void> {
  for (const unaccepted of reader.unaccepted()) {
    const { rollout, attempt, isOpen } = unaccepted
    yield { rollout, attempt, isOpen, ...spentOn(unaccepted, reader) }
  }
  // One that went down with its worker for good is a result, whose record knows nothing of what was spent on it.
  for (const { rollout, attempt } of reader.events(workerLostEvent)) {
    if (rollout === null || reader.rollout(rollout)?.attempt !== attempt) continue
    yield { rollout, attempt, isOpen: false, ...journalledSpending(rollout, attempt, reader) }
  }
}

function spentOn({ rollout, attempt, record }: UnacceptedAttempt, reader: RunReader): Omit<Spending, 'attempts'> {
  // One without a call may be that of an attempt that was lost with its worker, and taken back.
  if (!record || record.usage.calls === 0) return journalledSpending(rollout, attempt, reader)
  const usage = emptyUsage()
  addUsage(usage, record.usage)
  addUsage(usage, record.judgeUsage)
  return { usage, costUsd: record.cost ?? 0 }
}

function journalledSpending(rollout: string, attempt: number, reader: RunReader): Omit<Spending, 'attempts'> {
  const usage = emptyUsage()
  const sampled = reader.sampled(rollout, attempt)
  addUsage(usage, sampled.usage)
  let { costUsd } = sampled
  for (const id of reader.family(rollout, attempt)) {
    for (const verdict of readJudgeCalls(reader, id, attempt)) {
      addUsage(usage, verdict.usage)
      costUsd += verdict.cost ?? 0
    }
  }
  return { usage, costUsd }
}

function keyOf(rollout: string, attempt: number): string {
  return `${rollout} ${attempt}`
}
