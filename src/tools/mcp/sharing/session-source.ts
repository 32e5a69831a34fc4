import { closeTogether, Resource } from '../../../kit/index.ts'
import type { ToolCatalogue } from '../catalogue/tool-catalogue.ts'
import type { ServerBreaker } from '../session/server-breaker.ts'
import type { ServerEvent } from '../session/server-events.ts'
import type { ServerAnswer, ServerCall } from '../transports/pending-calls.ts'

/** The parts of an `McpSession` that the ways of sharing need. */
export interface SharableSession {
  readonly catalogue: ToolCatalogue | undefined
  /** Whether a call could be written now. */
  readonly isOpen: boolean
  open(signal?: AbortSignal): Promise<ToolCatalogue>
  /** Another rollout holds the session from now on: earlier restarts do not concern it. */
  beginLease(): void
  call(call: ServerCall): Promise<ServerAnswer>
  close(): Promise<void>
}

/** How a rollout used a session: no call, all calls answered, or a call abandoned that the server may still work on. */
export type SessionUse = 'unused' | 'used' | 'busy'

export interface SessionLease {
  readonly session: SharableSession
  /** Called once. A session that has to end does so in the background; closing the source waits for it. */
  giveBack(use: SessionUse): void
}

export interface SessionSource extends AsyncDisposable {
  /** Prepares what can be ready before a rollout asks for it. Never rejects. */
  warm(): Promise<void>
  /** `onEvent` takes the events of the session while it is held, unless other rollouts hold it too. */
  take(signal: AbortSignal, onEvent?: ServerEventListener): Promise<SessionLease>
}

export type ServerEventListener = (event: ServerEvent) => void

/** Where the events of one session go: to the rollout that holds it, and to the owner of all servers while none does. */
export class SessionEvents {
  holder: ServerEventListener | undefined
  readonly #owner: ServerEventListener

  constructor(owner: ServerEventListener, holder?: ServerEventListener) {
    this.#owner = owner
    this.holder = holder
  }

  readonly tell: ServerEventListener = (event) => (this.holder ?? this.#owner)(event)
}

/** Every session of a source that is not known to be gone. */
export class OwnedSessions {
  readonly #sessions = new Set<SharableSession>()
  /** The first error of a session that would not end: reported by `close`, since nobody waits for it before. */
  #failure: { readonly error: unknown } | undefined

  get size(): number {
    return this.#sessions.size
  }

  add(session: SharableSession): void {
    this.#sessions.add(session)
  }

  /** Ends a session. Never rejects. */
  async end(session: SharableSession): Promise<void> {
    try {
      await session.close()
    } catch (error) {
      this.#failure ??= { error }
    }
    this.#sessions.delete(session)
  }

  async close(): Promise<void> {
    await closeTogether(this.#sessions)
    if (this.#failure) throw this.#failure.error
  }
}

export class SharedServer extends Resource implements SessionSource {
  readonly #session: SharableSession
  readonly #breaker: ServerBreaker
  /** Holding the session costs nothing, so all rollouts get the same object. */
  readonly #held: SessionLease

  constructor(session: SharableSession, breaker: ServerBreaker) {
    super()
    this.#session = session
    this.#breaker = breaker
    this.#held = { session, giveBack: () => {} }
  }

  async warm(): Promise<void> {
    try {
      await this.take(this.closedSignal)
    } catch {
      // The next rollout tries again, and is told if that fails too.
    }
  }

  async take(signal: AbortSignal): Promise<SessionLease> {
    this.throwIfClosed()
    // A rollout that leaves does not stop an opening that others wait for.
    if (!this.#session.isOpen) await this.#breaker.open(() => this.#session.open(signal), { signal })
    return this.#held
  }

  protected override onClose(): Promise<void> {
    return this.#session.close()
  }
}

export interface OwnSessionOptions {
  readonly makeSession: (onEvent: ServerEventListener) => SharableSession
  readonly breaker: ServerBreaker
  /** Takes the events of sessions that no rollout holds. */
  readonly onEvent: ServerEventListener
}

interface SessionWithEvents {
  readonly session: SharableSession
  readonly events: SessionEvents
}

/**
 * A session per rollout on one server, which is somebody else's process. There are as many sessions as rollouts hold leases; one
 * ahead after `warm`, or after a rollout that did not use its own; and those that are just being ended, for which only `close`
 * waits: a server may take its time to confirm the end of one.
 */
export class SessionPerRollout extends Resource implements SessionSource {
  readonly #options: OwnSessionOptions
  readonly #sessions = new OwnedSessions()
  #spare: SessionWithEvents | undefined
  #warming: Promise<void> | undefined

  constructor(options: OwnSessionOptions) {
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

  async take(signal: AbortSignal, onEvent?: ServerEventListener): Promise<SessionLease> {
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
    void this.#sessions.end(spare.session)
    return undefined
  }

  #takeBack(taken: SessionWithEvents, use: SessionUse): void {
    taken.events.holder = undefined
    if (use !== 'unused' || this.#spare || this.isClosed) void this.#sessions.end(taken.session)
    else this.#spare = taken
  }

  async #open(signal: AbortSignal, holder?: ServerEventListener): Promise<SessionWithEvents> {
    const { makeSession, onEvent, breaker } = this.#options
    const open = async (): Promise<SessionWithEvents> => {
      this.throwIfClosed()
      const events = new SessionEvents(onEvent, holder)
      const session = makeSession(events.tell)
      this.#sessions.add(session)
      try {
        await session.open(signal)
        return { session, events }
      } catch (error) {
        void this.#sessions.end(session)
        throw error
      }
    }
    return await breaker.open(open, { signal })
  }

  protected override async onClose(): Promise<void> {
    await this.#sessions.close()
  }
}
