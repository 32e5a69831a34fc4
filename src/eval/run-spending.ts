import { addUsage, emptyUsage, type RolloutRecord, type Usage } from '../schema/index.ts'

type Spent = Pick<RolloutRecord, 'usage' | 'judgeUsage' | 'cost'>

/** What a run has cost, attempts that did not count included: a retry is paid for like anything else. */
export class RunSpending {
  /** Of attempts that ended and were not accepted: retried, replaced, taken back. */
  readonly discarded = { attempts: 0, usage: emptyUsage(), costUsd: 0 }
  #costUsd = 0

  /** US dollars, as far as prices are known. */
  get costUsd(): number {
    return this.#costUsd
  }

  add({ usage, judgeUsage, cost }: Spent, counts: boolean): void {
    this.#costUsd += cost ?? 0
    if (counts) return
    this.discarded.attempts += 1
    addUsage(this.discarded.usage, usage)
    addUsage(this.discarded.usage, judgeUsage)
    this.discarded.costUsd += cost ?? 0
  }
}

export interface DiscardedSpending {
  readonly attempts: number
  readonly usage: Usage
  readonly costUsd: number
}
