import type { CallKey } from './unanswered-calls.ts'
import type { WorkerDeath } from './worker.ts'

/** Fewer deaths than this condemn no call: something else may have killed the worker, even twice. */
const minDeaths = 3
/** How often a call may be lost, whichever call is to blame; after that it ends as `worker_lost`. */
const maxLosses = 6

export interface WorkerLoss {
  readonly losses: number
  readonly disposition: 'again' | 'worker_lost' | 'poisoned'
}

interface Suspect {
  losses: number
  disposition: WorkerLoss['disposition']
  /** The stage the suspect has reached; it never goes back. */
  stage: 'free' | 'together' | 'alone'
  /** The number of the calls it runs with, away from all others; undefined while it may run with all. */
  cohort: number | undefined
}

/**
 * Finds the call that kills workers without letting it kill more than a few. Every call that ran on a dead worker is suspect and
 * runs again away from the others: first all of them together; if that worker dies too, one by one. Only a call that died alone
 * is called poisoned, after three deaths. Then the other suspects are free; those that are lost a third time stay alone. If a
 * worker could say which call ended it, that call goes on alone, and the others stay free the first time.
 *
 * Holds one entry per call that was lost and has not ended since, which the scheduler's concurrency bounds.
 */
export class Quarantine {
  readonly #suspects = new Map<CallKey, Suspect>()
  #lastCohort = 0

  cohortOf(key: CallKey): number | undefined {
    return this.#suspects.get(key)?.cohort
  }

  lossOf(key: CallKey): WorkerLoss {
    return this.#suspects.get(key) ?? { losses: 0, disposition: 'again' }
  }

  forget(key: CallKey): void {
    this.#suspects.delete(key)
  }

  noteDeath({ calls, abandoned, culprit, isBlameless }: Omit<WorkerDeath, 'error'>): void {
    const given = new Set(abandoned).difference(new Set(calls))
    const suspects = [...calls, ...given].map((key) => this.#lost(key))
    this.#judge(suspects, isBlameless)
    if (!isBlameless) this.#isolate(suspects, culprit === undefined ? undefined : this.#suspects.get(culprit))
    // Abandoned calls may have been the culprit, but they do not run again.
    for (const key of given) this.forget(key)
  }

  #lost(key: CallKey): Suspect {
    const suspect = this.#suspects.get(key) ?? { losses: 0, disposition: 'again', stage: 'free', cohort: undefined }
    suspect.losses += 1
    this.#suspects.set(key, suspect)
    return suspect
  }

  #judge(suspects: readonly Suspect[], isBlameless: boolean): void {
    const hasDiedAlone = suspects.length === 1 && suspects[0]?.cohort !== undefined && !isBlameless
    for (const suspect of suspects) {
      if (hasDiedAlone && suspect.losses >= minDeaths) {
        suspect.disposition = 'poisoned'
        this.#release()
      } else if (suspect.losses >= maxLosses) suspect.disposition = 'worker_lost'
    }
  }

  #isolate(suspects: readonly Suspect[], accused: Suspect | undefined): void {
    const together = (this.#lastCohort += 1)
    for (const suspect of suspects) {
      if (accused && suspect !== accused && suspect.losses === 1) continue
      suspect.stage = suspect === accused || suspect.stage !== 'free' ? 'alone' : 'together'
      suspect.cohort = suspect.stage === 'together' ? together : (this.#lastCohort += 1)
    }
  }

  /** Frees the suspects, because a culprit was found: it may have been the only one. */
  #release(): void {
    for (const suspect of this.#suspects.values()) if (suspect.losses < minDeaths) suspect.cohort = undefined
  }
}
