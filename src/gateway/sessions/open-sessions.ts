import { MillraceError } from '../../errors/index.ts'
import { AttemptRecorder, isDamage, sessionAttempt, type RunStore, type StoredSession } from '../../store/index.ts'
import { ExpiryQueue } from './_expiry-queue.ts'
import { TextAllowance } from './_text-allowance.ts'
import { OpenSession, SessionMemory } from './open-session.ts'
import { replyIn } from './reply-in.ts'
import type { Caller } from '../caller.ts'
import { gatewayEvents } from '../gateway-events.ts'
import type { SessionBounds } from './session-bounds.ts'
import { sessionDamaged } from '../_refusals.ts'
import { TimeSlice } from '../../kit/index.ts'
import { SessionTally } from './session-tally.ts'
import { SessionTree } from './session-tree.ts'

export interface OpenSessionsOptions {
  readonly store: RunStore
  readonly bounds: SessionBounds
  /** Called for a session that was not used for its time to live. */
  readonly onExpired: (session: OpenSession) => void
}

/** How many damaged sessions are reported at most. */
const maxReported = 1_000

/** All sessions that have not ended. The messages of sessions in use are in memory, those of others are read back. */
export class OpenSessions implements Disposable {
  readonly #store: RunStore
  readonly #bounds: SessionBounds
  readonly #allowance: TextAllowance
  /** The allowance for last bodies. No session gives back its own for another's: that would cost more than reading a body. */
  readonly #bodies: TextAllowance
  readonly #sessions = new Map<string, OpenSession>()
  readonly #byKey = new Map<string, OpenSession>()
  readonly #expiry: ExpiryQueue<OpenSession>
  /** Remembered sessions that are not in use. A Set iterates in insertion order, so the first is the least recently used. */
  readonly #idle = new Set<OpenSession>()
  /** What the idle sessions hold. */
  #idleBytes = 0
  #idleChars = 0
  /** The damage of sessions that were reported as damaged. Each is reported once, or a client that polls would fill the log. */
  readonly #damage = new Map<string, MillraceError>()

  constructor({ store, bounds, onExpired }: OpenSessionsOptions) {
    this.#store = store
    this.#bounds = bounds
    this.#allowance = new TextAllowance(bounds.maxRememberedChars, () => this.#idleChars > 0 && this.#forgetOldest())
    this.#bodies = new TextAllowance(bounds.maxRememberedBodies, () => false)
    this.#expiry = new ExpiryQueue((session) => {
      if (session.running.size === 0) onExpired(session)
      else this.keepOpen(session)
    })
  }

  /** Restores the sessions that an earlier process left open. A session that cannot be read is reported, and left alone. */
  restore(): void {
    for (const stored of this.#store.reader.sessions.openSessions()) {
      try {
        this.#add(OpenSession.restored(stored))
      } catch (error) {
        if (lacksDescriptors(error)) throw tooManyFiles(stored.id, error)
        this.reportDamaged(stored, error)
      }
    }
  }

  /** Reports a damaged session, once. It cannot be continued; other sessions are not affected. */
  reportDamaged({ id }: Pick<StoredSession, 'id'>, thrown: unknown): void {
    if (this.#damage.has(id) || this.#damage.size >= maxReported) return
    const error = MillraceError.from(thrown, 'store_failed')
    this.#damage.set(id, error)
    gatewayEvents.publish({ kind: 'session-unreadable', folder: this.#store.folder, session: id, error })
  }

  /** The damage of the session, if it was reported. */
  damageOf(id: string): MillraceError | undefined {
    return this.#damage.get(id)
  }

  get size(): number {
    return this.#sessions.size
  }

  /** Sessions whose memory is kept for when they are used again. */
  get idle(): number {
    return this.#idle.size
  }

  /** A session, open or ended, if it is the caller's to see. */
  find(caller: Caller, id: string): OpenSession | StoredSession | undefined {
    if (caller.kind === 'session' && caller.sessionId !== id) return undefined
    const found = this.#sessions.get(id) ?? this.#store.reader.sessions.session(id)
    return found?.tenant === caller.tenant ? found : undefined
  }

  /** The caller whose key has this digest. Ended sessions count, too, so that a request with their key can be told so. */
  callerFor(digest: string): Caller | undefined {
    const open = this.#byKey.get(digest)
    if (open) return open.caller
    const ended = this.#store.reader.sessions.sessionByKeyDigest(digest)
    return ended && { kind: 'session', tenant: ended.tenant, sessionId: ended.id }
  }

  /** Adds a new session, which has no messages yet. */
  start(session: OpenSession): void {
    this.#add(session)
    session.isUnused = true
  }

  /** Keeps a session open that has expired. */
  keepOpen(session: OpenSession): void {
    session.touch()
    this.#expiry.add(session)
  }

  remove(session: OpenSession): void {
    this.#sessions.delete(session.id)
    this.#byKey.delete(session.keyDigest)
    this.#removeIdle(session)
    this.#expiry.remove(session)
    forget(session)
  }

  /** The session's memory: at once, or when it has been read. It stays until it was released as often as it was acquired. */
  acquire(session: OpenSession): SessionMemory | Promise<SessionMemory> {
    const memory = this.acquireReadable(session)
    return memory instanceof Promise ? this.#whole(session, memory) : memory
  }

  /** Like `acquire`, but gives the readable part of a damaged session; its tally says what cannot be read. */
  acquireReadable(session: OpenSession): SessionMemory | Promise<SessionMemory> {
    session.users += 1
    this.#removeIdle(session)
    return session.memory ?? (session.isUnused ? this.#firstMemory(session) : this.#loaded(session))
  }

  release(session: OpenSession): void {
    session.users -= 1
    if (session.users === 0) this.#rest(session)
  }

  /** Calls `look` with the session's memory. */
  async use<Result>(session: OpenSession, look: (memory: SessionMemory) => Result): Promise<Result> {
    const memory = await this.acquire(session)
    try {
      return look(memory)
    } finally {
      this.release(session)
    }
  }

  /** The tally of a stored session, as far as it can be read. */
  async count(id: string): Promise<SessionTally> {
    const tally = new SessionTally()
    await this.#readInto({ tally }, id)
    return tally
  }

  /** Resolves when all messages can be read from the store, which may be after a reply was sent; undefined if they can be now. */
  readable({ id }: OpenSession, { tree }: SessionMemory): Promise<void> | undefined {
    const { reader, journal } = this.#store
    const readTo = reader.sessions.lastSeq(id) ?? -1
    return readTo < tree.size - 1 ? journal.durable() : undefined
  }

  [Symbol.dispose](): void {
    this.#expiry[Symbol.dispose]()
  }

  #add(session: OpenSession): void {
    this.#sessions.set(session.id, session)
    this.#byKey.set(session.keyDigest, session)
    this.#expiry.add(session)
  }

  /** Rejects for a damaged session, which must not be continued. */
  async #whole(session: OpenSession, reading: Promise<SessionMemory>): Promise<SessionMemory> {
    const memory = await reading
    const { damage } = memory.tally
    if (!damage) return memory
    this.release(session)
    this.reportDamaged(session, damage)
    throw sessionDamaged(session.id, damage)
  }

  async #loaded(session: OpenSession): Promise<SessionMemory> {
    session.loading ??= this.#load(session)
    try {
      return await session.loading
    } catch (error) {
      session.users -= 1
      throw error
    }
  }

  async #load(session: OpenSession): Promise<SessionMemory> {
    try {
      // The last messages may still be on their way to the store.
      await this.#store.journal.durable()
      const memory = this.#newMemory(session)
      await this.#readInto(memory, session.id)
      if (memory.tally.damage) return memory
      session.memory = memory
      this.#damage.delete(session.id)
      return memory
    } finally {
      session.loading = undefined
    }
  }

  async #readInto(into: Pick<SessionMemory, 'tally'> & Partial<SessionMemory>, id: string): Promise<void> {
    try {
      await this.#readWhole(into, id)
    } catch (error) {
      if (!isDamage(error)) throw error
      into.tally.damage = error
    }
  }

  /** Reads a stored session: counts it, and restores the given parts of its memory. Other work has its turns meanwhile. */
  async #readWhole(
    { tree, tally, recent, unheard }: Pick<SessionMemory, 'tally'> & Partial<SessionMemory>,
    id: string,
  ): Promise<void> {
    const slice = new TimeSlice()
    for (const node of this.#store.reader.sessions.bareNodesOf(id)) {
      const { seq } = node
      const reply = replyIn(node)
      tree?.restore(node)
      tally.add(node)
      if (reply?.requestKey !== undefined) recent?.restore(reply.requestKey, { seq, wasHeard: node.call !== undefined })
      if (reply && node.discarded) unheard?.restore(seq, { call: reply, lacksTokens: node.lacksTokens })
      if (slice.isOver) await slice.rest()
    }
  }

  /** The memory of a session without messages: there is nothing to read. */
  #firstMemory(session: OpenSession): SessionMemory {
    session.isUnused = false
    session.memory = this.#newMemory(session)
    return session.memory
  }

  #newMemory(session: OpenSession): SessionMemory {
    const { journal } = this.#store
    const recorder = new AttemptRecorder(journal, session.id, sessionAttempt)
    const tree = new SessionTree(recorder, this.#allowance)
    return new SessionMemory({ tree, journal, session: session.id, bodies: this.#bodies })
  }

  /** Makes a session idle, and forgets idle ones beyond the bounds. Sessions in use stay: there are no more than requests. */
  #rest(session: OpenSession): void {
    if (!this.#sessions.has(session.id) || !session.memory) {
      forget(session)
      return
    }
    this.#idle.add(session)
    this.#count(session, 1)
    const { maxRemembered, maxRememberedBytes } = this.#bounds
    while (this.#idle.size > maxRemembered || this.#idleBytes > maxRememberedBytes) this.#forgetOldest()
  }

  #forgetOldest(): boolean {
    const [oldest] = this.#idle
    if (!oldest) return false
    this.#removeIdle(oldest)
    forget(oldest)
    return true
  }

  #removeIdle(session: OpenSession): void {
    if (this.#idle.delete(session)) this.#count(session, -1)
  }

  /** An idle memory does not change, so the same numbers are added and later taken away. */
  #count({ memory }: OpenSession, sign: 1 | -1): void {
    this.#idleBytes += sign * (memory?.tree.bytes ?? 0)
    this.#idleChars += sign * (memory?.tree.textChars ?? 0)
  }
}

/** Whether the process is out of descriptors: then the session is not damaged, and another start may read it. */
function lacksDescriptors(error: unknown): boolean {
  const { code } = error as NodeJS.ErrnoException
  return code === 'EMFILE' || code === 'ENFILE'
}

function tooManyFiles(id: string, cause: unknown): MillraceError {
  const message = `too many files are open to read session ${id}; raise ulimit -n, or close what holds them, then start the gateway again`
  return new MillraceError('overloaded', message, { data: { session: id }, cause })
}

function forget(session: OpenSession): void {
  session.memory?.forgetText()
  session.memory = undefined
}
