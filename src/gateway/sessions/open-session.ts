import { ArraySet } from '../../kit/index.ts'
import type { Journal, SessionEndReason, StoredSession } from '../../store/index.ts'
import type { Expiring } from './_expiry-queue.ts'
import { LastBody } from './last-body.ts'
import type { TextAllowance } from './_text-allowance.ts'
import type { LiveInteraction } from '../interactions/live-interaction.ts'
import { RecentRequests } from './recent-requests.ts'
import type { Caller } from '../caller.ts'
import { storedData, type SessionData } from './session-options.ts'
import type { SessionView } from './session-view.ts'
import { SessionTally } from './session-tally.ts'
import type { SessionTree } from './session-tree.ts'
import type { TreeNode } from './tree-node.ts'
import { UnheardReplies } from './unheard-replies.ts'

interface SessionMemoryOptions {
  readonly tree: SessionTree
  readonly journal: Journal
  readonly session: string
  readonly bodies: TextAllowance
}

/** What is kept in memory of a session only while it is used: all of it can be read from the store again. */
export class SessionMemory {
  readonly tree: SessionTree
  readonly tally = new SessionTally()
  readonly recent = new RecentRequests<LiveInteraction>()
  readonly unheard: UnheardReplies
  readonly lastBody: LastBody<TreeNode>

  constructor({ tree, journal, session, bodies }: SessionMemoryOptions) {
    this.tree = tree
    this.unheard = new UnheardReplies({ journal, session, tree, tally: this.tally })
    this.lastBody = new LastBody(bodies)
  }

  /** Gives back the text that was kept to be fast, because the session is not used for now. */
  forgetText(): void {
    this.tree.forgetText()
    this.lastBody.clear()
  }
}

/** The version of the weights of a reply that is recorded without it. */
interface DueVersion {
  /** Resolves when the version is appended to the journal, or known to stay unknown. */
  readonly recorded: Promise<void>
  /** Has the backend asked now. */
  look(): Promise<void>
}

/** A session that has not ended. Every open session has one of these, used or not, so it is small. */
export class OpenSession implements Expiring {
  readonly id: string
  readonly group: string
  readonly tenant: string
  readonly keyDigest: string
  readonly startedAt: number
  readonly data: SessionData
  /** The caller that has the session's key. */
  readonly caller: Caller
  readonly running = new ArraySet<LiveInteraction>()
  /** One for each reply whose weight version is yet to be found out: as many as replies that ended since the last question. */
  readonly dueVersions = new Set<DueVersion>()
  /** Set as soon as the end has begun; `view` settles when the end is on disk. */
  ending: { readonly why: SessionEndReason; readonly view: Promise<SessionView> } | undefined
  memory: SessionMemory | undefined
  /** Started by this process, and without messages so far. */
  isUnused = false
  /** Set while the memory is read from the store. */
  loading: Promise<SessionMemory> | undefined
  /** How many users hold on to the memory. */
  users = 0
  #expiresAt = 0

  constructor(start: Omit<StoredSession, 'data' | 'end'> & { readonly data: SessionData }) {
    this.id = start.id
    this.group = start.group
    this.tenant = start.tenant
    this.keyDigest = start.keyDigest
    this.startedAt = start.startedAt
    this.data = start.data
    this.caller = { kind: 'session', tenant: start.tenant, sessionId: start.id }
    this.touch()
  }

  /** A session that an earlier process left open. Its time begins anew, because nobody could use it meanwhile. */
  static restored(stored: StoredSession): OpenSession {
    const { id, group, tenant, keyDigest, startedAt } = stored
    return new OpenSession({ id, group, tenant, keyDigest, startedAt, data: storedData(stored) })
  }

  get expiresAt(): number {
    return this.#expiresAt
  }

  /** Notes that the session is being used: its time begins anew. */
  touch(): void {
    this.#expiresAt = performance.now() + this.data.ttlSeconds * 1000
  }
}
