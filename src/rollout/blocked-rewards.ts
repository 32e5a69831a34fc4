import type { Journal } from '../store/index.ts'
import { recordBlocked } from './record-blocked.ts'

/**
 * Rewards that held up the loop that all rollouts share. Each component is recorded the first time, and then only when it is
 * twice as bad as ever before: a run of a million rollouts has a few entries, not a million.
 */
export class BlockedRewards {
  readonly #environment: string
  readonly #journal: Pick<Journal, 'append'>
  /** The longest lag by component. */
  readonly #worstMs = new Map<string, number>()

  constructor(environment: string, journal: Pick<Journal, 'append'>) {
    this.#environment = environment
    this.#journal = journal
  }

  readonly note = (component: string, lagMs: number): void => {
    if (lagMs < 2 * (this.#worstMs.get(component) ?? 0)) return
    this.#worstMs.set(component, lagMs)
    const environment = this.#environment
    const blockedBy = `reward "${component}" of ${environment}`
    recordBlocked(this.#journal, { worker: null, lagMs: Math.round(lagMs), blockedBy, environment, component })
  }
}
