import { MillraceError } from '../errors/index.ts'
import type { LimitChange, ModelConfig, ModelStatus } from '../inference/index.ts'
import { Resource, Secret } from '../kit/index.ts'
import { recordLimitChange } from '../rollout/index.ts'
import type { RunStore } from '../store/index.ts'
import { draining, stopped } from './errors.ts'
import { gatewayEvents, type InteractionOutcome } from './events.ts'
import { Fleet } from './fleet.ts'
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
import { type Caller, keyDigest, type OpenSession, sessionPrefix } from './sessions/session-memory.ts'
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
  readonly #keys: KeyRing
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
    this.#keys = new KeyRing(adminKeys, (digest) => this.#openSessions.callerFor(digest), { takesGivenKeys })
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
    const { store, bounds = {}, onLimitChange, whenPaused, ...more } = options
    const { adminKeys: _keys, hostedTools: _tools, takesGivenKeys: _given, ...offered } = more
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
    return this.#keys.callerFor(token)
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

export interface AdminKey {
  readonly tenant: string
  readonly key: string
}

/** No key of ours is longer than this; a longer one is refused without a digest. */
const maxKeyChars = 4096

/** Refuses a key of two tenants. One tenant may name a key twice, in the configuration file and in the environment, say. */
export function refuseSharedKeys(admins: readonly AdminKey[]): void {
  const owners = new Map<string, string>()
  for (const { tenant, key } of admins) {
    const owner = owners.get(key) ?? tenant
    if (owner !== tenant) {
      const message = `tenants ${owner} and ${tenant} have the same admin key; give each a key of its own`
      throw new MillraceError('config_invalid', message)
    }
    owners.set(key, tenant)
  }
}

interface KeyRingOptions {
  /** Whether a session may have a key of any form. Then each unknown key is looked up in the store. */
  readonly takesGivenKeys: boolean
}

/** Finds the caller of a key: admins' keys are compared in constant time, sessions' keys are looked up by digest. */
export class KeyRing {
  readonly #admins: readonly { readonly secret: Secret; readonly caller: Caller }[]
  readonly #sessionCaller: (digest: string) => Caller | undefined
  readonly #takesGivenKeys: boolean
  /** The tenants that have an admin key. Session keys of other tenants are refused: nobody could look at those sessions. */
  readonly #tenants: ReadonlySet<string>
  constructor(
    admins: readonly AdminKey[],
    sessionCaller: (digest: string) => Caller | undefined,
    { takesGivenKeys }: KeyRingOptions = { takesGivenKeys: false },
  ) {
    if (admins.length === 0) throw new MillraceError('config_invalid', 'a gateway needs at least one admin key')
    refuseSharedKeys(admins)
    this.#admins = admins.map(({ tenant, key }) => ({ secret: new Secret(key), caller: { kind: 'admin', tenant } }))
    this.#sessionCaller = sessionCaller
    this.#takesGivenKeys = takesGivenKeys
    this.#tenants = new Set(admins.map(({ tenant }) => tenant))
  }

  callerFor(token: string | undefined): Caller | undefined {
    if (token === undefined || token === '' || token.length > maxKeyChars) return undefined
    // An admin may have chosen a key that looks like a session's.
    if (token.startsWith(sessionPrefix)) return this.#session(token) ?? this.#admin(token)
    return this.#admin(token) ?? (this.#takesGivenKeys ? this.#session(token) : undefined)
  }

  #session(token: string): Caller | undefined {
    const caller = this.#sessionCaller(keyDigest(token))
    return caller && this.#tenants.has(caller.tenant) ? caller : undefined
  }

  #admin(token: string): Caller | undefined {
    const sent = new Secret(token)
    let caller: Caller | undefined
    for (const admin of this.#admins) if (admin.secret.equals(sent)) caller = admin.caller
    return caller
  }
}
