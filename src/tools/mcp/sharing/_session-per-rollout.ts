import { Resource, closeTogether } from '../../../kit/index.ts'
import { HeldEvents, type ServerEventListener } from './_held-events.ts'
import type { HeldSession, KeptSession, SessionSource, SessionUse } from './_session-source.ts'
import type { ServerGate } from '../session/server-gate.ts'

export interface SessionPerRolloutOptions {
  readonly makeSession: (onEvent: ServerEventListener) => KeptSession
  readonly gate: ServerGate
  /** Takes the events of sessions that no rollout holds. */
  readonly onEvent: ServerEventListener
}

interface SessionWithEvents {
  readonly session: KeptSession
  readonly events: HeldEvents
}

/**
 * A session per rollout on one server, which is somebody else's process. There are as many sessions as rollouts hold leases; one
 * ahead after `warm`, or after a rollout that did not use its own; and those that are just being ended, for which only `close`
 * waits: a server may take its time to confirm the end of one.
 */
export class SessionPerRollout extends Resource implements SessionSource {
  readonly #options: SessionPerRolloutOptions
  /** Every session that is not known to be gone. */
  readonly #sessions = new Set<KeptSession>()
  #spare: SessionWithEvents | undefined
  #warming: Promise<void> | undefined
  /** The first error of a session that would not end: reported by `close`, since nobody waits for it before. */
  #closeFailure: { readonly error: unknown } | undefined

  constructor(options: SessionPerRolloutOptions) {
    super()
    this.#options = options
  }

  warm(): Promise<void> {
    this.#warming ??= this.#open(this.closedSignal).then(
      (opened) => {
        this.#spare = opened
      },
      () => {
        // The next rollout tries again, and is told if that fails too.
      },
    )
    return this.#warming
  }

  async take(signal: AbortSignal, onEvent?: ServerEventListener): Promise<HeldSession> {
    this.throwIfClosed()
    const taken = this.#takeSpare() ?? (await this.#open(signal, onEvent))
    taken.events.holder = onEvent
    return { session: taken.session, giveBack: (use) => this.#takeBack(taken, use) }
  }

  #takeSpare(): SessionWithEvents | undefined {
    const spare = this.#spare
    this.#spare = undefined
    if (!spare || spare.session.isOpen) return spare
    // A session that was lost meanwhile would count as restarted, though this rollout never told it anything.
    this.#end(spare.session)
    return undefined
  }

  #takeBack(taken: SessionWithEvents, use: SessionUse): void {
    taken.events.holder = undefined
    if (use !== 'unused' || this.#spare || this.isClosed) this.#end(taken.session)
    else this.#spare = taken
  }

  async #open(signal: AbortSignal, holder?: ServerEventListener): Promise<SessionWithEvents> {
    const { makeSession, onEvent, gate } = this.#options
    const open = async (): Promise<SessionWithEvents> => {
      this.throwIfClosed()
      const events = new HeldEvents(onEvent, holder)
      const session = makeSession(events.tell)
      this.#sessions.add(session)
      try {
        await session.open(signal)
        return { session, events }
      } catch (error) {
        this.#end(session)
        throw error
      }
    }
    return await gate.open(open, { signal })
  }

  /** Ends a session in the background. */
  #end(session: KeptSession): void {
    session
      .close()
      .catch((error: unknown) => {
        this.#closeFailure ??= { error }
      })
      .finally(() => this.#sessions.delete(session))
  }

  protected override async onClose(): Promise<void> {
    await closeTogether(this.#sessions)
    if (this.#closeFailure) throw this.#closeFailure.error
  }
}
