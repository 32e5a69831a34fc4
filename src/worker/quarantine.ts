import type { CallKey } from './_unanswered-calls.ts'
import type { WorkerDeath } from './pool-worker.ts'

/** Fewer deaths than this condemn no call: something else may have killed the worker, even twice. */
const minDeaths = 3
/** How often a call may be lost, whichever call is to blame; after that it ends as `worker_lost`. */
const maxLosses = 6
/** A cohort of so few is not divided into parts: each of its calls goes on alone. */
const smallCohort = 4

/** The verdict on a call that was lost. */
export interface Loss {
  readonly losses: number
  readonly verdict: 'again' | 'worker_lost' | 'poisoned'
}

type Stage = 'free' | 'together' | 'in-part' | 'alone'

interface Suspect {
  losses: number
  verdict: Loss['verdict']
  /** The stage the suspect has reached; it never goes back. */
  stage: Stage
  /** The calls it runs with, away from all others; undefined while it may run with all. */
  cohort: Cohort | undefined
}

interface Cohort {
  readonly id: number
  /** The death outside of quarantine that this began with. */
  readonly incident: number
}

/**
 * Finds the call that kills workers without letting it kill more than a few, or take innocent calls along for long.
 *
 * Every call that ran on a dead worker is suspect and runs again away from the others: first all of them together, for
 * the death may have had another cause; if that worker dies too, in parts of about the square root of their number; the
 * part that dies, one by one. Only a call that died alone is called poisoned, after three or four deaths, and then those
 * that were suspected with it are free; if they are lost again, they go on from the stage they had reached. A worker that
 * could say which call's code ended it shortens this: that call goes on alone, the others stay free the first time.
 *
 * Holds one entry per call that was lost and has not ended since, which the scheduler's concurrency bounds.
 */
export class Quarantine {
  readonly #suspects = new Map<CallKey, Suspect>()
  #lastCohort = 0
  #lastIncident = 0

  /** The cohort a call must run in; undefined if it may run with all others. */
  cohortOf(key: CallKey): number | undefined {
    return this.#suspects.get(key)?.cohort?.id
  }

  /** Whether the call was lost and has not ended since. */
  isSuspect(key: CallKey): boolean {
    return this.#suspects.has(key)
  }

  lossOf(key: CallKey): Loss {
    return this.#suspects.get(key) ?? { losses: 0, verdict: 'again' }
  }

  /** Forgets a call that ended, in whatever way, or that nobody waits for any more. */
  forget(key: CallKey): void {
    this.#suspects.delete(key)
  }

  noteDeath({ calls, abandoned, culprit, isBlameless }: Omit<WorkerDeath, 'error'>): void {
    const given = new Set(abandoned).difference(new Set(calls))
    const suspects = [...calls, ...given].map((key) => this.#lost(key))
    this.#judge(suspects, culprit === undefined ? undefined : this.#suspects.get(culprit), isBlameless)
    // Abandoned calls may have been the culprit, but they do not run again.
    for (const key of given) this.forget(key)
  }

  #judge(suspects: readonly Suspect[], accused: Suspect | undefined, isBlameless: boolean): void {
    const cohort = suspects[0]?.cohort
    const hasDiedAlone = cohort !== undefined && suspects.length === 1 && !isBlameless
    for (const suspect of suspects) {
      if (hasDiedAlone && suspect.losses >= minDeaths) suspect.verdict = 'poisoned'
      else if (suspect.losses >= maxLosses) suspect.verdict = 'worker_lost'
      if (suspect.verdict === 'poisoned') this.#release(suspect)
    }
    if (isBlameless) return
    const incident = cohort?.incident ?? (this.#lastIncident += 1)
    for (const suspect of suspects) {
      const isSpared = accused !== undefined && suspect.losses === 1
      if (suspect === accused) suspect.stage = 'alone'
      else if (!isSpared) suspect.stage = stageAfter(suspect.stage, suspects.length)
    }
    this.#part(suspects, 'together', suspects.length, incident)
    this.#part(suspects, 'in-part', Math.ceil(Math.sqrt(suspects.length)), incident)
    this.#part(suspects, 'alone', 1, incident)
  }

  #lost(key: CallKey): Suspect {
    const suspect = this.#suspects.get(key) ?? { losses: 0, verdict: 'again', stage: 'free', cohort: undefined }
    suspect.losses += 1
    this.#suspects.set(key, suspect)
    return suspect
  }

  /** Divides the suspects at one stage into cohorts of that size. */
  #part(suspects: readonly Suspect[], stage: Stage, size: number, incident: number): void {
    const members = suspects.filter((suspect) => suspect.stage === stage)
    for (let start = 0; start < members.length; start += size) {
      const cohort: Cohort = { id: (this.#lastCohort += 1), incident }
      for (const member of members.slice(start, start + size)) member.cohort = cohort
    }
  }

  /** Frees the suspects of the same incident, because the culprit was found. */
  #release(culprit: Suspect): void {
    for (const suspect of this.#suspects.values()) {
      if (suspect.cohort?.incident === culprit.cohort?.incident) suspect.cohort = undefined
    }
  }
}

function stageAfter(stage: Stage, count: number): Stage {
  if (stage === 'free') return 'together'
  return stage === 'together' && count > smallCohort ? 'in-part' : 'alone'
}
