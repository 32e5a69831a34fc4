import { MillraceError } from '../../errors/index.ts'
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
import type { SessionBook } from './session-book.ts'
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

/** Sessions that were started together. The keys are told once: nobody can read them anywhere afterwards. */
export interface StartedSessions {
  readonly groupId: string
  readonly sessions: readonly { readonly id: string; readonly key: string }[]
}

export interface SessionListQuery {
  readonly group?: string
  readonly state?: 'open' | 'ended'
  /** The last session of the list before. */
  readonly after?: string
  readonly limit: number
}

export interface SessionList {
  readonly sessions: readonly SessionSummary[]
  /** Those of which the store gives nothing back but their names, if there are any. */
  readonly unreadable?: readonly string[]
  /** What a list that goes on gives as its own `after`; null if nothing follows. */
  readonly after: string | null
}

export interface RewardOptions extends RewardedName {
  readonly reward: number
}

/** The sum over as many replies as a session can have is then still a number, also as a float32. */
const maxReward = 1e30

/** What is done with sessions from outside: start, look at, reward, end. Each caller sees its own only. */
export class Sessions {
  readonly #store: RunStore
  readonly #models: GatewayModels
  readonly #book: SessionBook
  readonly #bounds: SessionBounds
  /** Sessions that ended with a record that is of no use. */
  alarms = 0
  /** On their way to the disk. */
  #starting = 0
  /** Ends under way of sessions that are not in the book, no more than there are requests for them. */
  readonly #endingUnread = new Map<string, Promise<void>>()

  constructor(parts: { store: RunStore; models: GatewayModels; book: SessionBook; bounds: SessionBounds }) {
    this.#store = parts.store
    this.#models = parts.models
    this.#book = parts.book
    this.#bounds = parts.bounds
  }

  async start(caller: Caller, input: SessionOptionsInput): Promise<StartedSessions> {
    if (caller.kind !== 'admin') throw adminsOnly('starting a session')
    const parsed = sessionOptionsSchema.safeParse(input)
    if (!parsed.success) throw new MillraceError('usage', `${describeIssues(parsed.error.issues)}. Correct that.`)
    const { groupSize, groupId = orderedId('grp'), ...data } = parsed.data
    if (this.#book.size + this.#starting + groupSize > this.#bounds.maxOpenSessions) {
      throw tooMuch(`more than ${this.#bounds.maxOpenSessions} sessions would be open; end those that are not used`)
    }
    const started = Array.from({ length: groupSize }, () => newSession(caller.tenant, groupId, data))
    this.#starting += groupSize
    try {
      // All of a group or none, should this process end here.
      this.#store.journal.appendAll(started.map(({ session }) => startEntry(session)))
      await this.#store.journal.durable()
    } finally {
      this.#starting -= groupSize
    }
    for (const { session } of started) {
      this.#book.start(session)
      if (gatewayEvents.hasSubscribers) {
        const names = { session: session.id, group: groupId, tenant: caller.tenant }
        gatewayEvents.publish({ kind: 'session-start', folder: this.#store.folder, ...names })
      }
    }
    return { groupId, sessions: started.map(({ session, key }) => ({ id: session.id, key })) }
  }

  /** A session that is the caller's to see. What was said in it is not read for that. */
  find(caller: Caller, id: string): OpenSession | StoredSession {
    const found = this.#book.find(caller, id)
    if (!found) throw sessionUnknown(id)
    return found
  }

  /** As much as can be read of it, if it is damaged. */
  async view(caller: Caller, id: string): Promise<SessionView> {
    const found = this.find(caller, id)
    if (!(found instanceof OpenSession)) {
      const tally = await this.#book.count(id)
      return seenBy(caller, this.#viewOf(readableSummary(found, tally), tally))
    }
    const summary = summaryOf(found)
    const { tally } = await this.#book.acquireReadable(found)
    try {
      return seenBy(caller, this.#viewOf(summary, tally, found.running.size))
    } finally {
      this.#book.release(found)
    }
  }

  /** In the order they were started. One whose record is damaged costs itself only. What was said in them is not read for it. */
  list(caller: Caller, query: SessionListQuery): SessionList {
    if (caller.kind !== 'admin') throw adminsOnly('listing sessions')
    const { after } = query
    if (after !== undefined && !this.#book.find(caller, after)) {
      const message = `there is no session ${after.slice(0, 64)} to go on after; give the \`after\` of the list before`
      throw new MillraceError('usage', message, { data: { status: 400, param: 'after' } })
    }
    const found = this.#store.reader.sessions.sessions({ ...query, tenant: caller.tenant })
    const sessions: SessionSummary[] = []
    const unreadable: string[] = []
    for (const stored of found) {
      try {
        sessions.push(withDamage(storedSummary(stored), this.#book.damageOf(stored.id)))
      } catch (error) {
        if (!isDamage(error)) throw error
        unreadable.push(stored.id)
        this.#book.reportDamaged(stored, error)
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

  /** Resolves to the node it is for; null for all. */
  async reward(caller: Caller, id: string, { reward, ...reply }: RewardOptions): Promise<number | null> {
    if (!(Math.abs(reward) <= maxReward)) {
      const message = `a reward is a number from -${maxReward} to ${maxReward}. Leave it out if there is none.`
      throw new MillraceError('usage', message)
    }
    const found = this.#findManaged(caller, id)
    const node = await rewardedReply({ store: this.#store, book: this.#book }, found, reply)
    this.#store.journal.append({ kind: 'reward', session: id, node, value: reward, at: Date.now() })
    await this.#store.journal.durable()
    return node
  }

  /** Ends it for all who ask, once. If that fails it is open as before, and may be ended again. */
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
    const { tally, unheard } = await this.#book.acquireReadable(session)
    const end = { at: Date.now(), why }
    try {
      const running = Array.from(session.running)
      for (const interaction of running) interaction.abort(sessionSealed(id, why))
      // They still record what came of them.
      await Promise.all(running.map((interaction) => interaction.ended))
      // So does a retry that is being given a reply which nobody got: it may be all that there is.
      await unheard.allTold()
      this.#store.journal.append({ kind: 'session-end', session: id, ...end })
      await this.#store.journal.durable()
    } finally {
      this.#book.release(session)
    }
    this.#book.remove(session)
    this.#models.endSession(id)
    const view = this.#viewOf(summaryOf(session, end), tally)
    this.#tellEnd(session, why, tally)
    return view
  }

  /** Whoever asks meanwhile waits for the same end. */
  #sealUnreadOnce(stored: StoredSession): Promise<void> {
    const { id } = stored
    const underWay = this.#endingUnread.get(id)
    if (underWay) return underWay
    const ending = this.#sealUnread(stored).finally(() => this.#endingUnread.delete(id))
    this.#endingUnread.set(id, ending)
    return ending
  }

  /** One that is not in the book, because what was said at its start could not be read. Any other is just being started. */
  async #sealUnread(stored: StoredSession): Promise<void> {
    const { id } = stored
    const tally = await this.#book.count(id)
    readableSummary(stored, tally)
    if (!tally.damage) return
    this.#store.journal.append({ kind: 'session-end', session: id, at: Date.now(), why: 'ended' })
    await this.#store.journal.durable()
    this.#tellEnd(stored, 'ended', tally)
  }

  #tellEnd({ id, group, tenant }: OpenSession | StoredSession, why: SessionEndReason, tally: SessionTally): void {
    const alarms = alarmsOf(tally, true)
    if (alarms.length > 0) this.alarms += 1
    if (tally.damage) this.#book.reportDamaged({ id }, tally.damage)
    if (gatewayEvents.hasSubscribers) {
      const { interactions } = tally
      const { folder } = this.#store
      gatewayEvents.publish({ kind: 'session-end', folder, session: id, group, tenant, why, interactions, alarms })
    }
  }

  #viewOf(summary: SessionSummary, tally: SessionTally, running = 0): SessionView {
    const reward = this.#readableReward(summary.id, tally)
    if (tally.damage) this.#book.reportDamaged(summary, tally.damage)
    return viewOf(summary, tally, { running, reward })
  }

  /** For what decides about it: nobody is the judge of itself unless that was said when it was started. */
  #findManaged(caller: Caller, id: string): OpenSession | StoredSession {
    const found = this.find(caller, id)
    if (caller.kind === 'admin' || (found instanceof OpenSession ? found.data : storedData(found)).selfManaged)
      return found
    throw adminsOnly('rewarding or ending a session that was not started with selfManaged: true')
  }

  /** Of the session as a whole. */
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
