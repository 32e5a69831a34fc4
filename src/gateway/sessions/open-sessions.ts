import { MillraceError } from '../../errors/index.ts'
import { AttemptRecorder, isDamage, sessionAttempt, type RunStore, type StoredSession } from '../../store/index.ts'
import { BodyMemoryBudget } from './last-body.ts'
import { type NodeWithoutTokens, type Caller, OpenSession, SessionMemory, SessionTally } from './session-memory.ts'
import { gatewayEvents } from '../events.ts'
import type { SessionBounds } from './session-options.ts'
import { sessionDamaged } from '../errors.ts'
import { TimeSlice } from '../../kit/index.ts'
import { SessionTree } from './session-tree.ts'

export interface OpenSessionsOptions {
  readonly store: RunStore
  readonly bounds: SessionBounds
  readonly onExpired: (session: OpenSession) => void
}

const sweepMs = 500

const maxReported = 1_000

export class OpenSessions implements Disposable {
  readonly #store: RunStore
  readonly #bounds: SessionBounds
  readonly #bodies: BodyMemoryBudget
  readonly #sessions = new Map<string, OpenSession>()
  readonly #byKey = new Map<string, OpenSession>()
  readonly #onExpired: OpenSessionsOptions['onExpired']
  readonly #sweeping: NodeJS.Timeout
  /** Remembered sessions that are not in use. A Set iterates in insertion order, so the first is the least recently used. */
  readonly #idle = new Set<OpenSession>()
  /** What the idle sessions hold. An idle memory does not change, so the same number is added and later taken away. */
  #idleBytes = 0
  /** The damage of sessions that were reported as damaged. Each is reported once, or a client that polls would fill the log. */
  readonly #damage = new Map<string, MillraceError>()

  constructor({ store, bounds, onExpired }: OpenSessionsOptions) {
    this.#store = store
    this.#bounds = bounds
    this.#bodies = new BodyMemoryBudget(bounds.maxRememberedBodies)
    this.#onExpired = onExpired
    this.#sweeping = setInterval(() => void this.#sweep(), sweepMs).unref()
  }

  restore(): void {
    for (const stored of this.#store.reader.sessions.each({ state: 'open' })) {
      try {
        this.#add(OpenSession.restored(stored))
      } catch (error) {
        if (lacksDescriptors(error)) throw tooManyFiles(stored.id, error)
        this.reportDamaged(stored, error)
      }
    }
  }

  reportDamaged({ id }: Pick<StoredSession, 'id'>, thrown: unknown): void {
    if (this.#damage.has(id) || this.#damage.size >= maxReported) return
    const error = MillraceError.from(thrown, 'store_failed')
    this.#damage.set(id, error)
    gatewayEvents.publish({ kind: 'session-unreadable', folder: this.#store.folder, session: id, error })
  }

  damageOf(id: string): MillraceError | undefined {
    return this.#damage.get(id)
  }

  get size(): number {
    return this.#sessions.size
  }

  get idle(): number {
    return this.#idle.size
  }

  find(caller: Caller, id: string): OpenSession | StoredSession | undefined {
    if (caller.kind === 'session' && caller.sessionId !== id) return undefined
    const found = this.#sessions.get(id) ?? this.#store.reader.sessions.session(id)
    return found?.tenant === caller.tenant ? found : undefined
  }

  /** Whether a request in this session would be taken. */
  isOpen({ tenant }: Caller, id: string): boolean {
    const session = this.#sessions.get(id)
    return session?.tenant === tenant && !session.ending
  }

  /** Asks for the weight versions that are not known yet. Those of an ended session are. */
  async versionsRecorded(id: string): Promise<void> {
    await this.#sessions.get(id)?.dueVersions.recorded()
  }

  /** The caller whose key has this digest. Ended sessions count, too, so that a request with their key can be told so. */
  callerFor(digest: string): Caller | undefined {
    const open = this.#byKey.get(digest)
    if (open) return open.caller
    const ended = this.#store.reader.sessions.sessionByKeyDigest(digest)
    return ended && { kind: 'session', tenant: ended.tenant, sessionId: ended.id }
  }

  start(session: OpenSession): void {
    this.#add(session)
    session.isUnused = true
  }

  remove(session: OpenSession): void {
    this.#sessions.delete(session.id)
    // A later session may have its key by now.
    if (this.#byKey.get(session.keyDigest) === session) this.#byKey.delete(session.keyDigest)
    this.#removeIdle(session)
    forget(session)
  }

  /** Calls `look` with the session's memory, and holds the memory until it has ended. Throws for a damaged session. */
  async use<Result>(session: OpenSession, look: (memory: SessionMemory) => Result | Promise<Result>): Promise<Result> {
    return this.useReadable(session, (memory) => {
      const { damage } = memory.tally
      // A reward that cannot be read does not matter here: the memory of a session with damaged messages is not kept.
      if (!damage || memory === session.memory) return look(memory)
      this.reportDamaged(session, damage)
      throw sessionDamaged(session.id, damage)
    })
  }

  /** Like `use`, but gives the readable part of a damaged session; its tally says what cannot be read. */
  async useReadable<Result>(
    session: OpenSession,
    look: (memory: SessionMemory) => Result | Promise<Result>,
  ): Promise<Result> {
    session.users += 1
    this.#removeIdle(session)
    try {
      return await look(session.memory ?? (await this.#loaded(session)))
    } finally {
      session.users -= 1
      if (session.users === 0) this.#rest(session)
    }
  }

  async count(id: string): Promise<SessionTally> {
    const tally = new SessionTally()
    await this.#read(id, tally, (node) => tally.add(node))
    return tally
  }

  /** Resolves when all messages can be read from the store, which may be after a reply was sent; undefined if they can be now. */
  readable({ id }: OpenSession, { tree }: SessionMemory): Promise<void> | undefined {
    const { reader, journal } = this.#store
    const readTo = reader.sessions.lastSeq(id) ?? -1
    return readTo < tree.size - 1 ? journal.durable() : undefined
  }

  [Symbol.dispose](): void {
    clearInterval(this.#sweeping)
  }

  /** Reports expired sessions. Other work has its turns meanwhile: ten thousand may end together. */
  async #sweep(): Promise<void> {
    for await (const session of new TimeSlice().over(this.#sessions.values())) {
      if (session.isExpired && !session.ending) this.#onExpired(session)
    }
  }

  #add(session: OpenSession): void {
    this.#sessions.set(session.id, session)
    this.#byKey.set(session.keyDigest, session)
  }

  /** The memory of a session, read from the store once for all who ask. There is nothing to read of one without messages. */
  async #loaded(session: OpenSession): Promise<SessionMemory> {
    if (session.isUnused) {
      session.isUnused = false
      session.memory = this.#newMemory(session)
      return session.memory
    }
    session.loading ??= this.#load(session).finally(() => (session.loading = undefined))
    return session.loading
  }

  async #load(session: OpenSession): Promise<SessionMemory> {
    // The last messages may still be on their way to the store.
    await this.#store.journal.durable()
    const memory = this.#newMemory(session)
    await this.#read(session.id, memory.tally, (node) => memory.restore(node))
    if (memory.tally.damage) return memory
    session.memory = memory
    this.#damage.delete(session.id)
    return memory
  }

  /** Hands on the nodes of a stored session, as far as they can be read. Other work has its turns meanwhile. */
  async #read(id: string, tally: SessionTally, onNode: (node: NodeWithoutTokens) => void): Promise<void> {
    try {
      for await (const node of new TimeSlice().over(this.#store.reader.sessions.bareNodesOf(id))) onNode(node)
    } catch (error) {
      if (!isDamage(error)) throw error
      tally.damage = error
    }
  }

  #newMemory(session: OpenSession): SessionMemory {
    const { journal } = this.#store
    const recorder = new AttemptRecorder(journal, session.id, sessionAttempt)
    const tree = new SessionTree(recorder)
    return new SessionMemory({ tree, journal, session: session.id, bodies: this.#bodies })
  }

  /** Makes a session idle, and forgets idle ones beyond the bounds. Sessions in use stay: there are no more than requests. */
  #rest(session: OpenSession): void {
    if (!this.#sessions.has(session.id) || !session.memory) {
      forget(session)
      return
    }
    this.#idle.add(session)
    this.#idleBytes += session.memory.tree.bytes
    const { maxRemembered, maxRememberedBytes } = this.#bounds
    for (const oldest of this.#idle) {
      if (this.#idle.size <= maxRemembered && this.#idleBytes <= maxRememberedBytes) break
      this.#removeIdle(oldest)
      forget(oldest)
    }
  }

  #removeIdle(session: OpenSession): void {
    if (this.#idle.delete(session)) this.#idleBytes -= session.memory?.tree.bytes ?? 0
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
  session.memory?.lastBody.clear()
  session.memory = undefined
}
