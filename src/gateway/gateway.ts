import type { LimitChange, ModelStatus } from '../inference/index.ts'
import { Resource } from '../kit/index.ts'
import { recordLimitChange } from '../rollout/index.ts'
import type { RunStore } from '../store/index.ts'
import { choicesOf, membersWithChoices } from './interactions/choices.ts'
import { Interactions } from './interactions/interactions.ts'
import { JoinedChoices } from './interactions/joined-choices.ts'
import { KeyRing, type AdminKey } from './_keys.ts'
import type { OpenSession } from './sessions/open-session.ts'
import { draining, stopped } from './_refusals.ts'
import { OpenSessions } from './sessions/open-sessions.ts'
import {
  Sessions,
  type RewardOptions,
  type SessionList,
  type SessionListQuery,
  type StartedSessions,
} from './sessions/sessions.ts'
import type { InteractionCall } from './interactions/incoming-request.ts'
import type { Caller } from './caller.ts'
import type { ClientReply } from './interactions/client-reply.ts'
import type { InteractionOutcome } from './gateway-events.ts'
import {
  GatewayModels,
  type GatewayModel,
  type GatewayModelsOptions,
  type ModelOffer,
  type HostedTools,
} from './gateway-models.ts'
import { defaultSessionBounds, type SessionBounds } from './sessions/session-bounds.ts'
import type { SessionOptionsInput } from './sessions/session-options.ts'
import type { SessionView } from './sessions/session-view.ts'

export interface GatewayOptions extends Omit<GatewayModelsOptions, 'onLimitChange' | 'waits'> {
  /** The store that sessions are recorded in. It stays open when the gateway closes. */
  readonly store: RunStore
  readonly adminKeys: readonly AdminKey[]
  readonly bounds?: Partial<SessionBounds>
  /** What to do with tools that only the client's provider runs, such as its web search. Default: `leave-out`. */
  readonly hostedTools?: HostedTools
  /** Called when the concurrency limit of a model has changed, after the change is recorded. Must not throw. */
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
  /** The open sessions that are in memory although nobody uses them. */
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
 * tokens. No client is told that a reply is complete before it is recorded. The gateway itself has no network: a door gives
 * it one.
 */
export class Gateway extends Resource {
  /** The folder of the gateway's run. */
  readonly folder: string
  readonly #journal: RunStore['journal']
  readonly #keys: KeyRing
  readonly #models: GatewayModels
  readonly #openSessions: OpenSessions
  readonly #sessions: Sessions
  readonly #interactions: Interactions
  #isDraining = false
  /** Ends of expired sessions: no caller awaits them. */
  readonly #expiring = new Set<Promise<void>>()

  private constructor(options: GatewayOptions, models: GatewayModels) {
    const { store, adminKeys, bounds: given, hostedTools = 'leave-out' } = options
    super()
    const bounds = { ...defaultSessionBounds, ...given }
    this.folder = store.folder
    this.#journal = store.journal
    this.#keys = new KeyRing(adminKeys, (digest) => this.#openSessions.callerFor(digest))
    this.#models = models
    this.#openSessions = new OpenSessions({
      store,
      bounds,
      onExpired: (session) => this.#expire(session),
    })
    const parts = { store, models: this.#models, openSessions: this.#openSessions, bounds }
    this.#sessions = new Sessions(parts)
    this.#interactions = new Interactions({ ...parts, hostedTools })
  }

  /**
   * Opens a gateway, with the sessions that an earlier process left open. If a step fails, everything that was opened before
   * is closed when this rejects.
   */
  static async open(options: GatewayOptions): Promise<Gateway> {
    const { store, adminKeys: _keys, hostedTools: _tools, bounds = {}, onLimitChange, ...offered } = options
    const { maxWaitMs, maxRateLimitWaitMs } = { ...defaultSessionBounds, ...bounds }
    await using owned = new AsyncDisposableStack()
    const models = owned.use(
      await GatewayModels.open({
        ...offered,
        waits: { maxWaitMs, maxRateLimitWaitMs },
        onLimitChange: (change) => {
          recordLimitChange(store.journal, change)
          onLimitChange?.(change)
        },
      }),
    )
    const gateway = owned.use(new Gateway(options, models))
    gateway.#openSessions.restore()
    owned.move()
    return gateway
  }

  /** The caller that a key belongs to; undefined if it is no valid key. */
  callerFor(token: string | undefined): Caller | undefined {
    return this.#keys.callerFor(token)
  }

  /** One request for a model. Never rejects: every end, an error too, goes to `reply` in the words of the client's API. */
  async interact(call: InteractionCall, reply: ClientReply): Promise<void> {
    const members = membersWithChoices(call)
    const isOutside = call.sessionId === undefined && call.caller.kind !== 'session'
    // Outside of sessions nothing is recorded, so a server that takes `n` may sample all choices from one request.
    const name = members?.['model']
    const isPassed = isOutside && typeof name === 'string' && this.#models.known(name)?.takesChoices === true
    const choices = isPassed ? [call] : choicesOf(call, members)
    if (choices.length === 1) {
      await this.#interactions.begin(call, reply)
      return
    }
    const joined = new JoinedChoices(reply, choices.length)
    await Promise.all(choices.map((choice, index) => this.#interactions.begin(choice, joined.choice(index))))
  }

  /** Starts all sessions of a group, or none. They are on disk when this resolves. */
  async startSessions(caller: Caller, options: SessionOptionsInput): Promise<StartedSessions> {
    if (this.#isDraining || this.isClosed) throw draining()
    return this.#sessions.start(caller, options)
  }

  /** Throws unless the session exists and the caller may see it. */
  requireSession(caller: Caller, id: string): void {
    this.#sessions.find(caller, id)
  }

  session(caller: Caller, id: string): Promise<SessionView> {
    return this.#sessions.view(caller, id)
  }

  /** Lists sessions in the order in which they were started. */
  sessions(caller: Caller, query: SessionListQuery): SessionList {
    return this.#sessions.list(caller, query)
  }

  /**
   * Seals a session: running requests are given up and recorded as lost, and nothing is added afterwards. Ending it again
   * changes nothing.
   */
  endSession(caller: Caller, id: string): Promise<SessionView> {
    return this.#sessions.end(caller, id)
  }

  /** Records a reward, also after the session's end; the last one counts. Resolves to its node; null for the whole session. */
  reward(caller: Caller, id: string, reward: RewardOptions): Promise<number | null> {
    return this.#sessions.reward(caller, id, reward)
  }

  /** Resolves when everything that has ended so far is on disk, including lost samples, which no client waits for. */
  async recorded(): Promise<void> {
    await this.#journal.durable()
  }

  /** Replaces the offered models, when more backends have answered. Requests under way finish at their backend. */
  offer(offer: ModelOffer): void {
    this.#models.offer(offer)
  }

  /** Whether the backend at this url has requests under way, or answered one within so many milliseconds. */
  isActive(url: string, withinMs: number): boolean {
    return this.#models.isActive(url, withinMs)
  }

  models(): OfferedModel[] {
    return Array.from(this.#models.all(), ([id, model]) => offeredModel(id, model))
  }

  /** The model that requests with this name go to, aliases and `*` included. Throws if there is none. */
  model(id: string): OfferedModel {
    return offeredModel(id, this.#models.find(id))
  }

  status(): GatewayStatus {
    return {
      state: this.isClosed ? 'closed' : this.#isDraining ? 'draining' : 'open',
      openSessions: this.#openSessions.size,
      idleSessions: this.#openSessions.idle,
      running: this.#interactions.running,
      interactions: { ...this.#interactions.counts },
      alarms: this.#sessions.alarms,
      models: this.#models.status(),
    }
  }

  /** Refuses new requests and those that wait for a backend; resolves when all running ones have ended. Close afterwards. */
  drain(): Promise<void> {
    this.#isDraining = true
    return this.#interactions.drain()
  }

  /** Gives up running requests. Sessions stay open: the next process continues them. */
  protected async onClose(): Promise<void> {
    await this.#interactions.abort(stopped())
    this.#openSessions[Symbol.dispose]()
    await Promise.all(this.#expiring)
    await this.#models.close()
  }

  #expire(session: OpenSession): void {
    // A store that failed reports that itself; the session then stays open for the next process.
    const sealing = this.#sessions.seal(session, 'expired').then(
      () => {},
      () => this.#openSessions.keepOpen(session),
    )
    const ending = sealing.finally(() => this.#expiring.delete(ending))
    this.#expiring.add(ending)
  }
}

function offeredModel(id: string, { contextLength }: GatewayModel): OfferedModel {
  return { id, ...(contextLength !== undefined && { contextLength }) }
}
