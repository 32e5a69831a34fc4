import { Resource } from '../../../kit/index.ts'
import type { ServerGate } from '../session/server-gate.ts'
import type { HeldSession, KeptSession, SessionSource } from './_session-source.ts'

/** One session for all rollouts. */
export class SharedServer extends Resource implements SessionSource {
  readonly #session: KeptSession
  readonly #gate: ServerGate
  /** Holding the session costs nothing, so all rollouts get the same object. */
  readonly #held: HeldSession

  constructor(session: KeptSession, gate: ServerGate) {
    super()
    this.#session = session
    this.#gate = gate
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
    // A rollout that leaves does not stop an opening that others wait for.
    if (!this.#session.isOpen) await this.#gate.open(() => this.#session.open(signal), { signal })
    return this.#held
  }

  protected override onClose(): Promise<void> {
    return this.#session.close()
  }
}
