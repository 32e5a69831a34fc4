import { AttemptRecorder, type RunStore, type StoredSession } from '../store/index.ts'
import { ExpiryQueue } from './_expiry-queue.ts'
import { TextAllowance } from './_last-path.ts'
import { OpenSession, SessionMemory } from './_open-session.ts'
import type { Caller } from './caller.ts'
import type { SessionBounds } from './session-bounds.ts'
import type { SessionTally } from './session-tally.ts'
import { SessionTree } from './session-tree.ts'

/** The nodes of a session stand under its id and this attempt. */
const attempt = 0

export interface SessionBookOptions {
  readonly store: RunStore
  readonly bounds: SessionBounds
  readonly capturesTokens: (model: string) => boolean
  /** Nobody used it for as long as it may stay open. */
  readonly onExpired: (session: OpenSession) => void
}

/** All sessions that have not ended. What they said is remembered for those in use, and read back for the others. */
export class SessionBook implements Disposable {
  readonly #store: RunStore
  readonly #bounds: SessionBounds
  readonly #capturesTokens: (model: string) => boolean
  readonly #allowance: TextAllowance
  readonly #sessions = new Map<string, OpenSession>()
  readonly #byKey = new Map<string, OpenSession>()
  readonly #expiry: ExpiryQueue<OpenSession>
  /** Remembered, though nobody uses them. A Set iterates in insertion order, so the first was not used for longest. */
  readonly #idle = new Set<OpenSession>()

  constructor({ store, bounds, capturesTokens, onExpired }: SessionBookOptions) {
    this.#store = store
    this.#bounds = bounds
    this.#allowance = new TextAllowance(bounds.maxRememberedChars)
    this.#capturesTokens = capturesTokens
    this.#expiry = new ExpiryQueue((session) => {
      if (session.running.size === 0) onExpired(session)
      else {
        session.touch()
        this.#expiry.add(session)
      }
    })
    for (const stored of store.reader.sessions.openSessions()) this.#add(OpenSession.restored(stored))
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

  /** Whose key has this digest; also of a session that has ended, which then can say so. */
  callerFor(digest: string): Caller | undefined {
    const open = this.#byKey.get(digest)
    if (open) return open.caller
    const ended = this.#store.reader.sessions.sessionByKeyDigest(digest)
    return ended && { kind: 'session', tenant: ended.tenant, sessionId: ended.id }
  }

  /** A session of which nothing was said yet. */
  start(session: OpenSession): void {
    this.#add(session)
    session.memory = this.#newMemory(session)
    this.#rest(session)
  }

  remove(session: OpenSession): void {
    this.#sessions.delete(session.id)
    this.#byKey.delete(session.keyDigest)
    this.#idle.delete(session)
    this.#expiry.remove(session)
    forget(session)
  }

  /** What was said in it, at once or when it was read. It stays until it is released as often as it was acquired. */
  acquire(session: OpenSession): SessionMemory | Promise<SessionMemory> {
    session.users += 1
    this.#idle.delete(session)
    return session.memory ?? this.#loaded(session)
  }

  release(session: OpenSession): void {
    session.users -= 1
    if (session.users === 0) this.#rest(session)
  }

  /** What `look` finds in its memory. */
  async use<Result>(session: OpenSession, look: (memory: SessionMemory) => Result): Promise<Result> {
    const memory = await this.acquire(session)
    try {
      return look(memory)
    } finally {
      this.release(session)
    }
  }

  /** What is stored of a session, counted, and as a tree if there is one to fill. */
  readInto({ tree, tally }: { readonly tree?: SessionTree; readonly tally: SessionTally }, id: string): void {
    const { sessions } = this.#store.reader
    const lacking = sessions.firstWithoutTokens(id)
    for (const node of sessions.bareNodesOf(id)) {
      tree?.restore(node)
      tally.add(node)
      if (node.seq === lacking && node.call) tally.lacksTokens = this.#capturesTokens(node.call.model)
    }
  }

  [Symbol.dispose](): void {
    this.#expiry[Symbol.dispose]()
  }

  #add(session: OpenSession): void {
    this.#sessions.set(session.id, session)
    this.#byKey.set(session.keyDigest, session)
    this.#expiry.add(session)
  }

  async #loaded(session: OpenSession): Promise<SessionMemory> {
    session.loading ??= this.#load(session)
    try {
      return await session.loading
    } catch (error) {
      session.users -= 1
      throw error
    } finally {
      session.loading = undefined
    }
  }

  async #load(session: OpenSession): Promise<SessionMemory> {
    // What was said last may still be on its way to the disk.
    await this.#store.journal.durable()
    const memory = this.#newMemory(session)
    this.readInto(memory, session.id)
    session.memory = memory
    return memory
  }

  #newMemory(session: OpenSession): SessionMemory {
    const recorder = new AttemptRecorder(this.#store.journal, session.id, attempt)
    return new SessionMemory(new SessionTree(recorder, this.#allowance))
  }

  /** Nobody uses it for now. Those in use stay, however many they are: there are no more of them than requests. */
  #rest(session: OpenSession): void {
    if (!this.#sessions.has(session.id)) {
      forget(session)
      return
    }
    this.#idle.add(session)
    if (this.#idle.size <= this.#bounds.maxRemembered) return
    const [oldest] = this.#idle
    if (!oldest) return
    this.#idle.delete(oldest)
    forget(oldest)
  }
}

function forget(session: OpenSession): void {
  session.memory?.tree.forgetText()
  session.memory = undefined
}
