import { EventChannel } from '../../kit/index.ts'
import type { Journal } from '../../store/index.ts'
import { runEvent } from '../schedule/journal-entries.ts'

export interface BlockedLoop {
  /** The worker whose loop it was; null where rollouts run on the caller's own thread, and where a worker speaks of itself. */
  readonly worker: number | null
  readonly lagMs: number
  /** `name (file:line)`, or the part of the environment, where that can be told. */
  readonly blockedBy?: string
  readonly environment?: string
  readonly component?: string
}

/** Tells what held up a loop of this process, on the thread that found out. */
export const loopLag = new EventChannel<BlockedLoop>('millrace:loop-lag')

export const loopBlockedEvent = 'loop-blocked'

/** Publishes the event, and keeps it with the run, where `millrace doctor` looks for it. */
export function recordBlocked(journal: Pick<Journal, 'append'>, blocked: BlockedLoop): void {
  loopLag.publish(blocked)
  journal.append(runEvent(loopBlockedEvent, blocked))
}

/** A component is recorded the first time it holds up the loop, then only when it is twice as bad as ever before. */
export class BlockedRewards {
  readonly #environment: string
  readonly #journal: Pick<Journal, 'append'>
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
