import type { LimitChange, ModelConfig, ModelStatus } from '../inference/index.ts'
import { Resource } from '../kit/index.ts'
import { recordLimitChange } from '../rollout/index.ts'
import type { RunStore } from '../store/index.ts'
import { draining, stopped } from './errors.ts'
import { gatewayEvents, type InteractionOutcome } from './events.ts'
import { Fleet } from './fleet.ts'
import { type AdminKey, type IssuedKey, KeyRing } from './key-ring.ts'
import {
  type GatewayModel,
  GatewayModels,
  type GatewayModelsOptions,
  type HostedTools,
  type ModelOffer,
} from './models.ts'
import { choicesOf, JoinedChoices } from './requests/choices.ts'
import type { ClientReply } from '../endpoint/index.ts'
import { type InteractionCall, membersWithChoices } from './requests/incoming-request.ts'
import { Requests } from './requests/requests.ts'
import { OpenSessions } from './sessions/open-sessions.ts'
import type { Caller, OpenSession } from './sessions/session-memory.ts'
import { defaultSessionBounds, type SessionBounds, type SessionOptionsInput } from './sessions/session-options.ts'
import type { SessionView } from './sessions/session-view.ts'
import {
  type RewardOptions,
  type SessionList,
  type SessionListQuery,
  Sessions,
  type StartedSessions,
} from './sessions/sessions.ts'

export interface GatewayOptions extends Omit<GatewayModelsOptions, 'onLimitChange' | 'waits'> {
  /** The store that sessions are recorded in. It stays open when the gateway closes. */
  readonly store: RunStore
  readonly adminKeys: readonly AdminKey[]
  /** Keys that were issued by an earlier process. */
  readonly issuedKeys?: readonly IssuedKey[]
  readonly bounds?: Partial<SessionBounds>
  /** What to do with tools that only the client's provider runs, such as its web search. Default: `leave-out`. */
  readonly hostedTools?: HostedTools
  /** What requests do while all backends of their model are paused. Default: `wait`. */
  readonly whenPaused?: ModelConfig['whenPaused']
  /** Whether keys of sessions may have any form, because some are chosen by clients of `startSessions`. Default: false. */
  readonly takesGivenKeys?: boolean
  /** Called when the concurrency limit of a model has changed, after the change is recorded. Must not throw. */
  readonly onLimitChange?: (change: LimitChange) => void
}

export interface OfferedModel {
  readonly id: string
  readonly contextLength?: number
}

export interface GatewayStatus {
  readonly state: 'open' | 'draining' | 'closed'
  readonly openSessions: number
  readonly idleSessions: number
  readonly running: number
  readonly interactions: Readonly<Record<InteractionOutcome, number>>
  /** Sessions that ended with nothing captured, or without the tokens that were asked for. */
  readonly alarms: number
  readonly models: readonly ModelStatus[]
}

/**
 * The recording gateway, without a network: everything that clients say to models in a session becomes a tree of messages in
 * the store, with tokens. No client is told that a reply is complete before it is recorded.
 */
export class Gateway extends Resource {
  readonly folder: string
  readonly #journal: RunStore['journal']
  readonly keys: KeyRing
  readonly #models: GatewayModels
  /** Its backends, to be paused and told of new weights. */
  readonly fleet: Fleet
  readonly #openSessions: OpenSessions
  readonly #sessions: Sessions
  readonly #requests: Requests
  #isDraining = false
  /** Ends of expired sessions: no caller awaits them. */
  readonly #expiring = new Set<Promise<void>>()

  private constructor(options: GatewayOptions, models: GatewayModels) {
    const { store, adminKeys, bounds: given, hostedTools = 'leave-out', takesGivenKeys = false } = options
    super()
    const bounds = { ...defaultSessionBounds, ...given }
    this.folder = store.folder
    this.#journal = store.journal
    this.keys = new KeyRing(adminKeys, (digest) => this.#openSessions.callerFor(digest), { takesGivenKeys })
    for (const key of options.issuedKeys ?? []) this.keys.restore(key)
    this.#models = models
    this.fleet = new Fleet({
      served: () => models.backends(),
      gateOf: (url) => models.gateOf(url),
      secrets: options.secrets,
      onAlarm: (message) => gatewayEvents.publish({ kind: 'fleet-alarm', folder: store.folder, message }),
    })
    this.#openSessions = new OpenSessions({
      store,
      bounds,
      onExpired: (session) => this.#expire(session),
    })
    const parts = { store, models: this.#models, openSessions: this.#openSessions, bounds }
    this.#sessions = new Sessions(parts)
    this.#requests = new Requests({ ...parts, hostedTools })
  }

  /** Opens a gateway, with the sessions that an earlier process left open. */
  static async open(options: GatewayOptions): Promise<Gateway> {
    const {
      store,
      adminKeys: _keys,
      issuedKeys: _issued,
      hostedTools: _tools,
      takesGivenKeys: _given,
      ...more
    } = options
    const { bounds = {}, whenPaused, onLimitChange, ...offered } = more
    const { maxWaitMs, maxRateLimitWaitMs, maxPauseWaitMs } = { ...defaultSessionBounds, ...bounds }
    await using owned = new AsyncDisposableStack()
    const models = owned.use(
      await GatewayModels.open({
        ...offered,
        waits: { maxWaitMs, maxRateLimitWaitMs, maxPauseWaitMs, ...(whenPaused && { whenPaused }) },
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

  callerFor(token: string | undefined): Caller | undefined {
    return this.keys.callerFor(token)
  }

  /** One request for a model. Never rejects: every end, an error too, goes to `reply` in the words of the client's API. */
  async interact(call: InteractionCall, reply: ClientReply): Promise<void> {
    const members = membersWithChoices(call)
    const isOutside = call.sessionId === undefined && call.caller.kind !== 'session'
    // Outside of sessions nothing is recorded, so a server that takes `n` may sample all choices from one request.
    const name = members?.['model']
    const isPassed = isOutside && typeof name === 'string' && this.#models.known(name)?.takesChoices === true
    const choices = isPassed || !members ? [call] : choicesOf(call, members)
    if (choices.length === 1) {
      await this.#requests.begin(call, reply)
      return
    }
    const joined = new JoinedChoices(reply, choices.length)
    await Promise.all(choices.map((choice, index) => this.#requests.begin(choice, joined.choice(index))))
  }

  /**
   * Starts all sessions of a group, or none. They are on disk when this resolves. `keys`: the keys of the first of them. A key
   * that an earlier session has is from now on that of the new one.
   */
  async startSessions(
    caller: Caller,
    options: SessionOptionsInput,
    keys: readonly string[] = [],
  ): Promise<StartedSessions> {
    if (this.#isDraining || this.isClosed) throw draining()
    return this.#sessions.start(caller, options, keys)
  }

  isOpenSession(caller: Caller, id: string): boolean {
    return this.#openSessions.isOpen(caller, id)
  }

  requireSession(caller: Caller, id: string): void {
    this.#sessions.find(caller, id)
  }

  session(caller: Caller, id: string): Promise<SessionView> {
    return this.#sessions.view(caller, id)
  }

  sessions(caller: Caller, query: SessionListQuery): SessionList {
    return this.#sessions.list(caller, query)
  }

  /** Ends a session: running requests are aborted and recorded as lost. Ending it again changes nothing. */
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

  /** Resolves when the weight versions are on disk that backends tell only after the replies of this session, or after a while. */
  async versionsRecorded(session: string): Promise<void> {
    await this.#openSessions.versionsRecorded(session)
    await this.#journal.durable()
  }

  /** Replaces the offered models, when more backends have answered. Requests under way finish at their backend. */
  offer(offer: ModelOffer): void {
    this.#models.offer(offer)
  }

  /** Resolves when backends that are no longer offered have ended their requests and are closed. */
  backendsClosed(): Promise<void> {
    return this.#models.closedLeft()
  }

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

  /** What a request that names this model is sent to, where any request is to get a reply. Undefined if there is no model yet. */
  modelNameFor(name: unknown): string | undefined {
    return this.#models.nameFor(name)
  }

  status(): GatewayStatus {
    return {
      state: this.isClosed ? 'closed' : this.#isDraining ? 'draining' : 'open',
      openSessions: this.#openSessions.size,
      idleSessions: this.#openSessions.idle,
      running: this.#requests.running,
      interactions: { ...this.#requests.counts },
      alarms: this.#sessions.alarms,
      models: this.#models.status(),
    }
  }

  /** Refuses new requests and those that wait for a backend; resolves when all running ones have ended. Close afterwards. */
  drain(): Promise<void> {
    this.#isDraining = true
    return this.#requests.drain()
  }

  /** Gives up running requests. Sessions stay open: the next process continues them. */
  protected async onClose(): Promise<void> {
    await this.#requests.abort(stopped())
    this.#openSessions[Symbol.dispose]()
    await Promise.all(this.#expiring)
    await this.fleet.close()
    await this.#models.close()
  }

  #expire(session: OpenSession): void {
    if (this.isClosed) return
    // A store that failed reports that itself; the session then stays open for the next process.
    const ended = this.#sessions.endOnce(session, 'expired').then(
      () => {},
      () => session.touch(),
    )
    const ending = ended.finally(() => this.#expiring.delete(ending))
    this.#expiring.add(ending)
  }
}

function offeredModel(id: string, { contextLength }: GatewayModel): OfferedModel {
  return { id, ...(contextLength !== undefined && { contextLength }) }
}
