import { MillraceError } from '../../errors/index.ts'
import { within } from '../../kit/index.ts'
import { describeIssues } from '../../schema/index.ts'
import {
  isDamage,
  type RunStore,
  type SessionEndReason,
  type SessionStart,
  type StoredSession,
} from '../../store/index.ts'
import { keyDigest, newSessionKey } from '../_keys.ts'
import { OpenSession } from './open-session.ts'
import { orderedId } from './_ordered-id.ts'
import { adminsOnly, sessionSealed, sessionUnknown, tooMuch } from '../_refusals.ts'
import { rewardedReply, type RewardedName } from './_rewarded-reply.ts'
import type { OpenSessions } from './open-sessions.ts'
import type { Caller } from '../caller.ts'
import { gatewayEvents } from '../gateway-events.ts'
import type { GatewayModels } from '../gateway-models.ts'
import type { SessionBounds } from './session-bounds.ts'
import { sessionOptionsSchema, storedData, type SessionData, type SessionOptionsInput } from './session-options.ts'
import type { SessionTally } from './session-tally.ts'
import {
  alarmsOf,
  readableSummary,
  seenBy,
  storedSummary,
  summaryOf,
  viewOf,
  withDamage,
  type SessionSummary,
  type SessionView,
} from './session-view.ts'

/** Sessions that were started together. The keys are shown only here: they cannot be read anywhere afterwards. */
export interface StartedSessions {
  readonly groupId: string
  readonly sessions: readonly { readonly id: string; readonly key: string }[]
}

export interface SessionListQuery {
  readonly group?: string
  readonly state?: 'open' | 'ended'
  /** The last session of the previous page. */
  readonly after?: string
  readonly limit: number
}

export interface SessionList {
  readonly sessions: readonly SessionSummary[]
  /** Sessions of which the store can read only the id, if there are any. */
  readonly unreadable?: readonly string[]
  /** The `after` of the next page; null if there is none. */
  readonly after: string | null
}

export interface RewardOptions extends RewardedName {
  readonly reward: number
}

/** With this maximum, the sum over as many replies as a session can have is still finite, also as a float32. */
const maxReward = 1e30
/** How long the end of a session waits for the versions of weights. They are still recorded later, if they become known. */
const maxVersionWaitMs = 5_000

/** The operations on sessions from outside: start, look at, reward, end. Each caller sees only its own. */
export class Sessions {
  readonly #store: RunStore
  readonly #models: GatewayModels
  readonly #openSessions: OpenSessions
  readonly #bounds: SessionBounds
  /** How many sessions ended with a record that is of no use. */
  alarms = 0
  /** Sessions whose start is on its way to the disk. */
  #starting = 0
  /** Ends under way of sessions that are not among the open sessions, by session. There are no more of them than requests. */
  readonly #endingUnread = new Map<string, Promise<void>>()

  constructor(parts: { store: RunStore; models: GatewayModels; openSessions: OpenSessions; bounds: SessionBounds }) {
    this.#store = parts.store
    this.#models = parts.models
    this.#openSessions = parts.openSessions
    this.#bounds = parts.bounds
  }

  async start(caller: Caller, input: SessionOptionsInput): Promise<StartedSessions> {
    if (caller.kind !== 'admin') throw adminsOnly('starting a session')
    const parsed = sessionOptionsSchema.safeParse(input)
    if (!parsed.success) throw new MillraceError('usage', `${describeIssues(parsed.error.issues)}. Correct that.`)
    const { groupSize, groupId = orderedId('grp'), ...data } = parsed.data
    if (this.#openSessions.size + this.#starting + groupSize > this.#bounds.maxOpenSessions) {
      throw tooMuch(`more than ${this.#bounds.maxOpenSessions} sessions would be open; end those that are not used`)
    }
    const started = Array.from({ length: groupSize }, () => newSession(caller.tenant, groupId, data))
    this.#starting += groupSize
    try {
      // One batch, so that all of the group is recorded or none, should the process end here.
      this.#store.journal.appendAll(started.map(({ session }) => startEntry(session)))
      await this.#store.journal.durable()
    } finally {
      this.#starting -= groupSize
    }
    for (const { session } of started) {
      this.#openSessions.start(session)
      if (gatewayEvents.hasSubscribers) {
        const names = { session: session.id, group: groupId, tenant: caller.tenant }
        gatewayEvents.publish({ kind: 'session-start', folder: this.#store.folder, ...names })
      }
    }
    return { groupId, sessions: started.map(({ session, key }) => ({ id: session.id, key })) }
  }

  /** A session that the caller may see. Its messages are not read for that. */
  find(caller: Caller, id: string): OpenSession | StoredSession {
    const found = this.#openSessions.find(caller, id)
    if (!found) throw sessionUnknown(id)
    return found
  }

  /** The view of a session; of a damaged one as much as can be read. */
  async view(caller: Caller, id: string): Promise<SessionView> {
    const found = this.find(caller, id)
    if (!(found instanceof OpenSession)) {
      const tally = await this.#openSessions.count(id)
      return seenBy(caller, this.#viewOf(readableSummary(found, tally), tally))
    }
    const summary = summaryOf(found)
    const { tally } = await this.#openSessions.acquireReadable(found)
    try {
      return seenBy(caller, this.#viewOf(summary, tally, found.running.size))
    } finally {
      this.#openSessions.release(found)
    }
  }

  /** Sessions in the order they were started. A damaged record affects only its own session. Messages are not read for a list. */
  list(caller: Caller, query: SessionListQuery): SessionList {
    if (caller.kind !== 'admin') throw adminsOnly('listing sessions')
    const { after } = query
    if (after !== undefined && !this.#openSessions.find(caller, after)) {
      const message = `there is no session ${after.slice(0, 64)} to go on after; give the \`after\` of the list before`
      throw new MillraceError('usage', message, { data: { status: 400, param: 'after' } })
    }
    const found = this.#store.reader.sessions.sessions({ ...query, tenant: caller.tenant })
    const sessions: SessionSummary[] = []
    const unreadable: string[] = []
    for (const stored of found) {
      try {
        sessions.push(withDamage(storedSummary(stored), this.#openSessions.damageOf(stored.id)))
      } catch (error) {
        if (!isDamage(error)) throw error
        unreadable.push(stored.id)
        this.#openSessions.reportDamaged(stored, error)
      }
    }
    const last = found.length < query.limit ? undefined : found.at(-1)
    return { sessions, ...(unreadable.length > 0 && { unreadable }), after: last?.id ?? null }
  }

  async end(caller: Caller, id: string): Promise<SessionView> {
    const found = this.#findManaged(caller, id)
    if (found instanceof OpenSession) return seenBy(caller, await this.seal(found, 'ended'))
    if (!found.end) await this.#sealUnreadOnce(found)
    return this.view(caller, id)
  }

  /** Rewards a reply or the whole session. Resolves to the reply's node; null for the whole session. */
  async reward(caller: Caller, id: string, { reward, ...reply }: RewardOptions): Promise<number | null> {
    if (!(Math.abs(reward) <= maxReward)) {
      const message = `a reward is a number from -${maxReward} to ${maxReward}. Leave it out if there is none.`
      throw new MillraceError('usage', message)
    }
    const found = this.#findManaged(caller, id)
    const node = await rewardedReply({ store: this.#store, openSessions: this.#openSessions }, found, reply)
    this.#store.journal.append({ kind: 'reward', session: id, node, value: reward, at: Date.now() })
    await this.#store.journal.durable()
    return node
  }

  /** Ends the session, once for all callers. If that fails the session is open as before, and may be ended again. */
  seal(session: OpenSession, why: SessionEndReason): Promise<SessionView> {
    session.ending ??= {
      why,
      view: this.#seal(session, why).catch((error: unknown) => {
        session.ending = undefined
        throw error
      }),
    }
    return session.ending.view
  }

  async #seal(session: OpenSession, why: SessionEndReason): Promise<SessionView> {
    const { id } = session
    const { tally, unheard } = await this.#openSessions.acquireReadable(session)
    const end = { at: Date.now(), why }
    try {
      const running = Array.from(session.running)
      for (const interaction of running) interaction.abort(sessionSealed(id, why))
      // The aborted interactions still record how they ended.
      await Promise.all(running.map((interaction) => interaction.ended))
      // A retry that is being told an unheard reply is waited for, too: that reply may be the session's only one.
      await unheard.allTold()
      await versionsRecorded(session)
      this.#store.journal.append({ kind: 'session-end', session: id, ...end })
      await this.#store.journal.durable()
    } finally {
      this.#openSessions.release(session)
    }
    this.#openSessions.remove(session)
    this.#models.endSession(id)
    const view = this.#viewOf(summaryOf(session, end), tally)
    this.#tellEnd(session, why, tally)
    return view
  }

  /** Callers that ask meanwhile wait for the same end. */
  #sealUnreadOnce(stored: StoredSession): Promise<void> {
    const { id } = stored
    const underWay = this.#endingUnread.get(id)
    if (underWay) return underWay
    const ending = this.#sealUnread(stored).finally(() => this.#endingUnread.delete(id))
    this.#endingUnread.set(id, ending)
    return ending
  }

  /** Ends a session that is not among the open sessions, because its options could not be read. Without damage it is just being started. */
  async #sealUnread(stored: StoredSession): Promise<void> {
    const { id } = stored
    const tally = await this.#openSessions.count(id)
    readableSummary(stored, tally)
    if (!tally.damage) return
    this.#store.journal.append({ kind: 'session-end', session: id, at: Date.now(), why: 'ended' })
    await this.#store.journal.durable()
    this.#tellEnd(stored, 'ended', tally)
  }

  #tellEnd({ id, group, tenant }: OpenSession | StoredSession, why: SessionEndReason, tally: SessionTally): void {
    const alarms = alarmsOf(tally, true)
    if (alarms.length > 0) this.alarms += 1
    if (tally.damage) this.#openSessions.reportDamaged({ id }, tally.damage)
    if (gatewayEvents.hasSubscribers) {
      const { interactions } = tally
      const { folder } = this.#store
      gatewayEvents.publish({ kind: 'session-end', folder, session: id, group, tenant, why, interactions, alarms })
    }
  }

  #viewOf(summary: SessionSummary, tally: SessionTally, running = 0): SessionView {
    const reward = this.#readableReward(summary.id, tally)
    if (tally.damage) this.#openSessions.reportDamaged(summary, tally.damage)
    return viewOf(summary, tally, { running, reward })
  }

  /** A session that the caller may reward or end. A session's own key may only if it was started with `selfManaged`. */
  #findManaged(caller: Caller, id: string): OpenSession | StoredSession {
    const found = this.find(caller, id)
    if (caller.kind === 'admin' || (found instanceof OpenSession ? found.data : storedData(found)).selfManaged)
      return found
    throw adminsOnly('rewarding or ending a session that was not started with selfManaged: true')
  }

  /** The reward of the session as a whole, if it can be read. */
  #readableReward(id: string, tally: SessionTally): number | null {
    try {
      return this.#store.reader.sessions.rewardsOf(id).find(({ node }) => node === null)?.value ?? null
    } catch (error) {
      if (!isDamage(error)) throw error
      tally.damage ??= error
      return null
    }
  }
}

function newSession(tenant: string, group: string, data: SessionData): { session: OpenSession; key: string } {
  const key = newSessionKey()
  const names = { id: orderedId('ses'), group, tenant, keyDigest: keyDigest(key) }
  return { session: new OpenSession({ ...names, startedAt: Date.now(), data }), key }
}

function startEntry(session: OpenSession): SessionStart {
  const { id, group, tenant, keyDigest: digest, startedAt: at, data } = session
  return { kind: 'session-start', session: id, group, tenant, keyDigest: digest, at, data: JSON.stringify(data) }
}

/** Waits until the replies of a session have the version of their weights, but not for a backend that does not answer. */
async function versionsRecorded({ dueVersions }: OpenSession): Promise<void> {
  if (dueVersions.size === 0) return
  const all = Array.from(dueVersions, (due) => due.look().then(() => due.recorded))
  await within(Promise.all(all), maxVersionWaitMs)
}
