import type { MillraceError } from '../errors/index.ts'
import type { LimitChange, ModelStatus } from '../inference/index.ts'
import { Resource } from '../kit/index.ts'
import { recordLimitChange } from '../rollout/index.ts'
import type { RunStore } from '../store/index.ts'
import { Interactions } from './interactions/interactions.ts'
import { KeyRing, type AdminKey } from './_keys.ts'
import type { OpenSession } from './sessions/open-session.ts'
import { draining, stopped } from './_refusals.ts'
import { SessionBook } from './sessions/session-book.ts'
import {
  Sessions,
  type RewardOptions,
  type SessionList,
  type SessionListQuery,
  type StartedSessions,
} from './sessions/sessions.ts'
import type { InteractionCall } from './interactions/visit.ts'
import type { Caller } from './caller.ts'
import type { ClientReply } from './interactions/client-reply.ts'
import type { InteractionOutcome } from './gateway-events.ts'
import { GatewayModels, type GatewayModelsOptions, type ModelOffer } from './gateway-models.ts'
import { defaultSessionBounds, type SessionBounds } from './sessions/session-bounds.ts'
import type { SessionOptionsInput } from './sessions/session-options.ts'
import type { SessionView } from './sessions/session-view.ts'

export interface GatewayOptions extends Omit<GatewayModelsOptions, 'onLimitChange'> {
  /** Where sessions are kept. Stays open when the gateway closes. */
  readonly store: RunStore
  readonly adminKeys: readonly AdminKey[]
  readonly bounds?: Partial<SessionBounds>
  /** Hears how much may be asked of a model, when that changes, after it is recorded. Must not throw. */
  readonly onLimitChange?: (change: LimitChange) => void
}

/** A name that clients can ask for. */
export interface OfferedModel {
  readonly id: string
  readonly contextLength?: number
}

export interface GatewayStatus {
  readonly state: 'open' | 'draining' | 'closed'
  readonly openSessions: number
  /** Of those, the ones that nobody uses and that are in memory all the same. */
  readonly idleSessions: number
  /** Requests under way. */
  readonly running: number
  readonly interactions: Readonly<Record<InteractionOutcome, number>>
  /** Sessions that ended with nothing captured, or without the tokens that were asked for. */
  readonly alarms: number
  readonly models: readonly ModelStatus[]
}

/**
 * The recording gateway: everything that clients say to models in a session becomes a tree of messages in the store, with
 * tokens, and nobody is told that a reply is complete before it is there. A door gives it a network; it needs none.
 */
export class Gateway extends Resource {
  /** Of its run. */
  readonly folder: string
  readonly #journal: RunStore['journal']
  readonly #keys: KeyRing
  readonly #models: GatewayModels
  readonly #book: SessionBook
  readonly #sessions: Sessions
  readonly #interactions: Interactions
  #isDraining = false
  /** Ends that nobody asked for, and so nobody awaits. */
  readonly #expiring = new Set<Promise<void>>()

  private constructor({ store, adminKeys, bounds: given, onLimitChange, ...models }: GatewayOptions) {
    super()
    const bounds = { ...defaultSessionBounds, ...given }
    this.folder = store.folder
    this.#journal = store.journal
    this.#keys = new KeyRing(adminKeys, (digest) => this.#book.callerFor(digest))
    this.#models = new GatewayModels({
      ...models,
      onLimitChange: (change) => {
        recordLimitChange(store.journal, change)
        onLimitChange?.(change)
      },
    })
    this.#book = new SessionBook({
      store,
      bounds,
      onExpired: (session) => this.#expire(session),
    })
    const parts = { store, models: this.#models, book: this.#book, bounds }
    this.#sessions = new Sessions(parts)
    this.#interactions = new Interactions(parts)
  }

  /** Knows the sessions again that an earlier process left open. */
  static async open(options: GatewayOptions): Promise<Gateway> {
    const gateway = new Gateway(options)
    try {
      gateway.#book.restore()
    } catch (error) {
      await gateway.close()
      throw error
    }
    return gateway
  }

  /** Whose key this is, if it is anybody's. */
  callerFor(token: string | undefined): Caller | undefined {
    return this.#keys.callerFor(token)
  }

  /** One request for a model. Never rejects: every end, an error too, goes to `reply` in the words of the client's API. */
  interact(call: InteractionCall, reply: ClientReply): Promise<void> {
    return this.#interactions.begin(call, reply)
  }

  /** As many as the group has, all of them or none. They are on disk when this resolves. */
  async startSessions(caller: Caller, options: SessionOptionsInput): Promise<StartedSessions> {
    if (this.#isDraining || this.isClosed) throw draining()
    return this.#sessions.start(caller, options)
  }

  /** Fails unless there is such a session and it is the caller's to see. */
  requireSession(caller: Caller, id: string): void {
    this.#sessions.find(caller, id)
  }

  session(caller: Caller, id: string): Promise<SessionView> {
    return this.#sessions.view(caller, id)
  }

  /** In the order they were started. */
  sessions(caller: Caller, query: SessionListQuery): SessionList {
    return this.#sessions.list(caller, query)
  }

  /** Seals it: what still runs is given up and recorded as lost, and nothing is added after. Ending it again changes nothing. */
  endSession(caller: Caller, id: string): Promise<SessionView> {
    return this.#sessions.end(caller, id)
  }

  /** What it was worth, also after its end. The last one said counts. Resolves to the node it is for; null for all. */
  reward(caller: Caller, id: string, reward: RewardOptions): Promise<number | null> {
    return this.#sessions.reward(caller, id, reward)
  }

  /** Resolves when all that has ended so far is on disk, lost samples too, for whose end no client is kept waiting. */
  async recorded(): Promise<void> {
    await this.#journal.durable()
  }

  /** What its backends serve, now that more of them have answered. Requests under way end where they began. */
  offer(offer: ModelOffer): void {
    this.#models.offer(offer)
  }

  /** Why nothing can be asked under this name. */
  unknownModel(name: string): MillraceError {
    return this.#models.unknown(name)
  }

  models(): OfferedModel[] {
    return Array.from(this.#models.all(), ([id, { contextLength }]) => ({
      id,
      ...(contextLength !== undefined && { contextLength }),
    }))
  }

  status(): GatewayStatus {
    return {
      state: this.isClosed ? 'closed' : this.#isDraining ? 'draining' : 'open',
      openSessions: this.#book.size,
      idleSessions: this.#book.idle,
      running: this.#interactions.running,
      interactions: { ...this.#interactions.counts },
      alarms: this.#sessions.alarms,
      models: this.#models.status(),
    }
  }

  /** Takes nothing new, nor what waits for a backend; resolves when what runs has ended. Close afterwards. */
  drain(): Promise<void> {
    this.#isDraining = true
    return this.#interactions.drain()
  }

  /** Gives up what runs. Sessions stay open: the next process knows them. */
  protected async onClose(): Promise<void> {
    await this.#interactions.abort(stopped())
    this.#book[Symbol.dispose]()
    await Promise.all(this.#expiring)
    await this.#models.close()
  }

  #expire(session: OpenSession): void {
    // A store that failed says so itself; the session is then still open when the next process comes.
    const sealing = this.#sessions.seal(session, 'expired').then(
      () => {},
      () => this.#book.keepOpen(session),
    )
    const ending = sealing.finally(() => this.#expiring.delete(ending))
    this.#expiring.add(ending)
  }
}
