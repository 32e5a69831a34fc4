import { Resource, raced } from '../../../kit/index.ts'
import type { HeldSession, KeptSession, SessionSource } from './_session-source.ts'
import { StartBudget, type StartBudgetOptions } from './_start-budget.ts'

/** One session for all rollouts. */
export class SharedServer extends Resource implements SessionSource {
  readonly #session: KeptSession
  readonly #budget: StartBudget
  /** Holding the session costs nothing, so all rollouts get the same object. */
  readonly #held: HeldSession

  constructor(session: KeptSession, budget?: StartBudgetOptions) {
    super()
    this.#session = session
    this.#budget = new StartBudget(budget)
    this.#held = { session, giveBack: () => {} }
  }

  async warm(): Promise<void> {
    try {
      await this.take(this.closedSignal)
    } catch {
      // The next rollout tries again, and is told if that fails too.
    }
  }

  async take(signal: AbortSignal): Promise<HeldSession> {
    this.throwIfClosed()
    // The first rollout to ask may be cancelled, but the session it asked for belongs to all.
    if (!this.#session.isOpen) {
      await raced(
        this.#budget.start(() => this.#session.open(), this.closedSignal),
        signal,
      )
    }
    return this.#held
  }

  protected override onClose(): Promise<void> {
    return this.#session.close()
  }
}
