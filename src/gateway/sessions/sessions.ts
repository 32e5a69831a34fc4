import { randomBytes } from 'node:crypto'
import { MillraceError } from '../../errors/index.ts'
import { describeIssues, type DiscardRecord, safeParse } from '../../schema/index.ts'
import {
  isDamage,
  type RunStore,
  type SessionEndReason,
  type SessionStart,
  type StoredSession,
} from '../../store/index.ts'
import { adminKeyRequired, sessionEnded, sessionUnknown, tooManyError } from '../errors.ts'
import { gatewayEvents } from '../events.ts'
import { type Caller, keyDigest, newSessionKey, OpenSession, type SessionTally } from './session-memory.ts'
import type { GatewayModels } from '../models.ts'
import type { OpenSessions } from './open-sessions.ts'
import { discardedNamed } from './recorded-replies.ts'
import {
  type SessionBounds,
  type SessionData,
  type SessionOptionsInput,
  sessionOptionsSchema,
  storedData,
} from './session-options.ts'
import {
  alarmsOf,
  readableSummary,
  viewFor,
  type SessionSummary,
  type SessionView,
  storedSummary,
  summaryOf,
  viewOf,
  withDamage,
} from './session-view.ts'

/** Sessions that were started together. The keys are shown only here: they cannot be read anywhere afterwards. */
export interface StartedSessions {
  readonly groupId: string
  readonly sessions: readonly { readonly id: string; readonly key: string }[]
}

export interface SessionListQuery {
  readonly group?: string
  readonly state?: 'open' | 'ended'
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

/** A reward for a reply, by its client's name for it or by its node; without either, for the session as a whole. */
export interface RewardOptions {
  readonly reward: number
  readonly interactionId?: string
  readonly node?: number
}

/** With this maximum, the sum over as many replies as a session can have is still finite, also as a float32. */
const maxReward = 1e30

interface SessionsOptions {
  readonly store: RunStore
  readonly models: GatewayModels
  readonly openSessions: OpenSessions
  readonly bounds: SessionBounds
}

/** The operations on sessions from outside: start, look at, reward, end. Each caller sees only its own. */
export class Sessions {
  readonly #parts: SessionsOptions
  /** How many sessions ended with a record that is of no use. */
  alarms = 0
  /** Sessions whose start is on its way to the disk. */
  #starting = 0
  /** Ends under way, by session. */
  readonly #ending = new Map<string, Promise<SessionView>>()
  /** Ends under way of sessions that are not among the open sessions, by session. There are no more of them than requests. */
  readonly #endingUnread = new Map<string, Promise<void>>()

  constructor(parts: SessionsOptions) {
    this.#parts = parts
  }

  async start(caller: Caller, input: SessionOptionsInput, keys: readonly string[]): Promise<StartedSessions> {
    if (caller.kind !== 'admin') throw adminKeyRequired('starting a session')
    const parsed = safeParse(sessionOptionsSchema, input)
    if (!parsed.success) throw new MillraceError('usage', `${describeIssues(parsed.error.issues)}. Correct that.`)
    const { groupSize, groupId = orderedId('grp'), ...data } = parsed.data
    if (this.#parts.openSessions.size + this.#starting + groupSize > this.#parts.bounds.maxOpenSessions) {
      throw tooManyError(
        `more than ${this.#parts.bounds.maxOpenSessions} sessions would be open; end those that are not used`,
      )
    }
    const started = Array.from({ length: groupSize }, (_, index) =>
      newSession({ tenant: caller.tenant, group: groupId, data, key: keys[index] ?? newSessionKey() }),
    )
    this.#starting += groupSize
    try {
      // One batch, so that all of the group is recorded or none, should the process end here.
      this.#parts.store.journal.appendAll(started.map(({ session }) => startEntry(session)))
      await this.#parts.store.journal.durable()
    } finally {
      this.#starting -= groupSize
    }
    for (const { session } of started) {
      this.#parts.openSessions.start(session)
      if (gatewayEvents.hasSubscribers) {
        const names = { session: session.id, group: groupId, tenant: caller.tenant }
        gatewayEvents.publish({ kind: 'session-start', folder: this.#parts.store.folder, ...names })
      }
    }
    return { groupId, sessions: started.map(({ session, key }) => ({ id: session.id, key })) }
  }

  find(caller: Caller, id: string): OpenSession | StoredSession {
    const found = this.#parts.openSessions.find(caller, id)
    if (!found) throw sessionUnknown(id)
    return found
  }

  /** The view of a session; of a damaged one as much as can be read. */
  async view(caller: Caller, id: string): Promise<SessionView> {
    const found = this.find(caller, id)
    if (!(found instanceof OpenSession)) {
      const tally = await this.#parts.openSessions.count(id)
      return viewFor(caller, this.#viewOf(readableSummary(found, tally), tally))
    }
    const view = await this.#parts.openSessions.useReadable(found, ({ tally }) =>
      this.#viewOf(summaryOf(found), tally, found.running.size),
    )
    return viewFor(caller, view)
  }

  /** Sessions in the order they were started. A damaged record affects only its own session. Messages are not read for a list. */
  list(caller: Caller, query: SessionListQuery): SessionList {
    if (caller.kind !== 'admin') throw adminKeyRequired('listing sessions')
    const { after } = query
    if (after !== undefined && !this.#parts.openSessions.find(caller, after)) {
      const message = `there is no session ${after.slice(0, 64)} to continue after; give the \`after\` of the previous page`
      throw new MillraceError('usage', message, { data: { status: 400, param: 'after' } })
    }
    const found = this.#parts.store.reader.sessions.sessions({ ...query, tenant: caller.tenant })
    const sessions: SessionSummary[] = []
    const unreadable: string[] = []
    for (const stored of found) {
      try {
        sessions.push(withDamage(storedSummary(stored), this.#parts.openSessions.damageOf(stored.id)))
      } catch (error) {
        if (!isDamage(error)) throw error
        unreadable.push(stored.id)
        this.#parts.openSessions.reportDamaged(stored, error)
      }
    }
    const last = found.length < query.limit ? undefined : found.at(-1)
    return { sessions, ...(unreadable.length > 0 && { unreadable }), after: last?.id ?? null }
  }

  async end(caller: Caller, id: string): Promise<SessionView> {
    const found = this.#findManaged(caller, id)
    if (found instanceof OpenSession) return viewFor(caller, await this.endOnce(found, 'ended'))
    if (!found.end) {
      // Callers that ask meanwhile wait for the same end.
      const ending = this.#endingUnread.get(id) ?? this.#endUnread(found).finally(() => this.#endingUnread.delete(id))
      this.#endingUnread.set(id, ending)
      await ending
    }
    return this.view(caller, id)
  }

  /** Rewards a reply or the whole session. Resolves to the reply's node; null for the whole session. */
  async reward(caller: Caller, id: string, { reward, ...name }: RewardOptions): Promise<number | null> {
    if (!(Math.abs(reward) <= maxReward)) {
      const message = `a reward is a number from -${maxReward} to ${maxReward}. Leave it out if there is none.`
      throw new MillraceError('usage', message)
    }
    const found = this.#findManaged(caller, id)
    const node = await this.#rewardedNode(found, name)
    this.#parts.store.journal.append({ kind: 'reward', session: id, node, value: reward, at: Date.now() })
    await this.#parts.store.journal.durable()
    return node
  }

  /** The node of the rewarded reply; null for the whole session. Throws if there is no such reply. */
  async #rewardedNode(
    session: OpenSession | StoredSession,
    { interactionId, node }: Omit<RewardOptions, 'reward'>,
  ): Promise<number | null> {
    const { id } = session
    const { journal, reader } = this.#parts.store
    if (node !== undefined && interactionId !== undefined) {
      throw new MillraceError('usage', 'give either the interactionId or the node of the reply, not both')
    }
    if (node !== undefined) {
      await journal.durable()
      const found = reader.sessions.bareNode(id, node)
      if (found?.call) return node
      if (found?.discarded) throw discardedReply(`the reply at node ${node}`, id, found.discarded)
      throw noSuchReply(`session ${id} has no complete reply at node ${node}; exports show the node of each reply`)
    }
    if (interactionId === undefined) return null
    const named = await this.#replyNamed(session, interactionId)
    if (named !== undefined) return named
    const called = interactionId.slice(0, 80)
    await journal.durable()
    const discarded = await discardedNamed(reader.sessions, id, interactionId)
    if (discarded) throw discardedReply(`reply ${called}`, id, discarded)
    const which = '`interactionId` is the `id` of a reply as the client received it; exports show it as `interaction`'
    throw noSuchReply(`session ${id} has no reply ${called}; ${which}`)
  }

  /** The complete reply of this name; the latest, if a backend used the name more than once. */
  async #replyNamed(session: OpenSession | StoredSession, replyId: string): Promise<number | undefined> {
    if (!(session instanceof OpenSession)) {
      return this.#parts.store.reader.sessions.repliesNamed(session.id, replyId).at(-1)
    }
    return this.#parts.openSessions.use(session, (memory) => {
      const named = memory.tree.replyNamed(replyId)
      return named && !memory.isUndelivered(named.seq) ? named.seq : undefined
    })
  }

  /** Ends the session, once for all callers. If that fails the session is open as before, and may be ended again. */
  endOnce(session: OpenSession, why: SessionEndReason): Promise<SessionView> {
    const { id } = session
    session.ending ??= why
    const ending =
      this.#ending.get(id) ??
      this.#endOnce(session, session.ending)
        .catch((error: unknown) => {
          session.ending = undefined
          throw error
        })
        .finally(() => this.#ending.delete(id))
    this.#ending.set(id, ending)
    return ending
  }

  async #endOnce(session: OpenSession, why: SessionEndReason): Promise<SessionView> {
    const { id } = session
    const end = { at: Date.now(), why }
    const tally = await this.#parts.openSessions.useReadable(session, async (memory) => {
      const running = Array.from(session.running)
      for (const request of running) request.abort(sessionEnded(id, why))
      // The aborted requests still record how they ended.
      await Promise.all(running.map((request) => request.ended))
      await session.dueVersions.recorded()
      this.#parts.store.journal.append({ kind: 'session-end', session: id, ...end })
      await this.#parts.store.journal.durable()
      return memory.tally
    })
    this.#parts.openSessions.remove(session)
    this.#parts.models.endSession(id)
    const view = this.#viewOf(summaryOf(session, end), tally)
    this.#reportEnd(session, why, tally)
    return view
  }

  /** Ends a session that is not among the open sessions, because its options could not be read. Without damage it is just being started. */
  async #endUnread(stored: StoredSession): Promise<void> {
    const { id } = stored
    const tally = await this.#parts.openSessions.count(id)
    readableSummary(stored, tally)
    if (!tally.damage) return
    this.#parts.store.journal.append({ kind: 'session-end', session: id, at: Date.now(), why: 'ended' })
    await this.#parts.store.journal.durable()
    this.#reportEnd(stored, 'ended', tally)
  }

  #reportEnd({ id, group, tenant }: OpenSession | StoredSession, why: SessionEndReason, tally: SessionTally): void {
    const alarms = alarmsOf(tally, true)
    if (alarms.length > 0) this.alarms += 1
    if (tally.damage) this.#parts.openSessions.reportDamaged({ id }, tally.damage)
    if (gatewayEvents.hasSubscribers) {
      const { interactions } = tally
      const { folder } = this.#parts.store
      gatewayEvents.publish({ kind: 'session-end', folder, session: id, group, tenant, why, interactions, alarms })
    }
  }

  #viewOf(summary: SessionSummary, tally: SessionTally, running = 0): SessionView {
    const reward = this.#readableReward(summary.id, tally)
    if (tally.damage) this.#parts.openSessions.reportDamaged(summary, tally.damage)
    return viewOf(summary, tally, { running, reward })
  }

  /** A session that the caller may reward or end. A session's own key may only if it was started with `selfManaged`. */
  #findManaged(caller: Caller, id: string): OpenSession | StoredSession {
    const found = this.find(caller, id)
    if (caller.kind === 'admin' || (found instanceof OpenSession ? found.data : storedData(found)).selfManaged)
      return found
    throw adminKeyRequired('rewarding or ending a session that was not started with selfManaged: true')
  }

  /** The reward of the session as a whole, if it can be read. */
  #readableReward(id: string, tally: SessionTally): number | null {
    try {
      return this.#parts.store.reader.sessions.rewardsOf(id).find(({ node }) => node === null)?.value ?? null
    } catch (error) {
      if (!isDamage(error)) throw error
      tally.damage ??= error
      return null
    }
  }
}

function discardedReply(which: string, id: string, { why }: DiscardRecord): MillraceError {
  const fate = `was discarded (${why}): no client received all of it, so it is not trained on and cannot have a reward`
  return noSuchReply(`${which} of session ${id} ${fate}`)
}

function noSuchReply(message: string): MillraceError {
  return new MillraceError('usage', message, { data: { status: 404 } })
}

interface NewSession {
  readonly tenant: string
  readonly group: string
  readonly data: SessionData
  readonly key: string
}

function newSession({ key, ...names }: NewSession): { session: OpenSession; key: string } {
  const start = { id: orderedId('ses'), keyDigest: keyDigest(key), startedAt: Date.now(), ...names }
  return { session: new OpenSession(start), key }
}

function startEntry(session: OpenSession): SessionStart {
  const { id, group, tenant, keyDigest: digest, startedAt: at, data } = session
  return { kind: 'session-start', session: id, group, tenant, keyDigest: digest, at, data: JSON.stringify(data) }
}

/** The stamp of the last id, in microseconds or one more than the one before. Ten digits to the base of 36 last until 2085. */
let lastStamp = 0

/**
 * An id that nobody can guess, and that sorts after those made before it. Sessions that are in use together then lie together
 * in the journal's index: with 64 at once a commit writes 4 of its pages, where ids in no order took 65.
 */
export function orderedId(kind: 'grp' | 'ses'): string {
  lastStamp = Math.max(lastStamp + 1, Date.now() * 1000)
  return `${kind}_${lastStamp.toString(36)}${randomBytes(9).toString('base64url')}`
}
