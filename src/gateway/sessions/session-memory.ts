import { hash, randomBytes } from 'node:crypto'
import { type DialectRequest, maxChoices } from '../../apis/index.ts'
import type { MillraceError } from '../../errors/index.ts'
import { limitBusy, limitExhausted } from '../errors.ts'
import { DueVersions } from '../../inference/index.ts'
import { ArraySet } from '../../kit/index.ts'
import type { MessageNode } from '../../schema/index.ts'
import type { Journal, SessionEndReason, StoredSession } from '../../store/index.ts'
import type { ClientReply } from '../../endpoint/index.ts'
import type { RequestEnd } from '../requests/client-reply.ts'
import { type BodyMemoryBudget, LastBody } from './last-body.ts'
import { type SessionData, storedData, type SessionLimits } from './session-options.ts'
import { type KnownPrefix, type ReplyFacts, replyIn, type SessionTree } from './session-tree.ts'

export type NodeWithoutTokens = MessageNode & { readonly lacksTokens: boolean }

interface SessionMemoryOptions {
  readonly tree: SessionTree
  readonly journal: Journal
  readonly session: string
  readonly bodies: BodyMemoryBudget
}

/** What is kept in memory of a session only while it is used: all of it can be read from the store again. */
export class SessionMemory {
  readonly tree: SessionTree
  readonly tally = new SessionTally()
  readonly recent = new RecentRequests<RunningRequest>()
  readonly lastBody: LastBody<KnownPrefix>
  readonly #journal: Journal
  readonly #session: string

  constructor({ tree, journal, session, bodies }: SessionMemoryOptions) {
    this.tree = tree
    this.lastBody = new LastBody(bodies)
    this.#journal = journal
    this.#session = session
  }

  restore(node: NodeWithoutTokens): void {
    const { seq, discarded, lacksTokens } = node
    this.tree.restore(node)
    this.tally.add(node)
    const call = replyIn(node)
    if (call?.requestKey !== undefined) this.recent.restore(call.requestKey, seq)
    const reply = this.tree.nodeAt(seq)
    if (reply && call && discarded) reply.undelivered = { call, lacksTokens }
  }

  isUndelivered(node: number): boolean {
    return this.tree.nodeAt(node)?.undelivered !== undefined
  }

  /** Marks a reply that is recorded as complete, unless a client continued it while it was on its way to the disk. */
  markUndelivered(node: number, reply: ReplyFacts): void {
    const found = this.tree.nodeAt(node)
    if (!found || found.undelivered || found.isContinued) return
    found.undelivered = reply
    this.tally.lose(reply)
    this.#journal.append({ kind: 'delivery', session: this.#session, node, isDelivered: false })
  }

  /** Makes an undelivered reply complete again, and returns it; ignores other replies. */
  markDelivered(node: number): ReplyFacts | undefined {
    const found = this.tree.nodeAt(node)
    if (!found?.undelivered) return undefined
    const reply = found.undelivered
    found.undelivered = undefined
    this.tally.regain(reply)
    this.#journal.append({ kind: 'delivery', session: this.#session, node, isDelivered: true })
    return reply
  }
}

export interface RunningRequest {
  readonly ended: Promise<RequestEnd>
  abort(reason: MillraceError): void
  /** Answers one more client, which sent the same request. Undefined if it is too late for that. */
  join(client: ClientReply, request: DialectRequest): Promise<RequestEnd> | undefined
}

/** The owner of a key. A session's key is good for that session alone, an admin's for everything of the tenant. */
export type Caller =
  | { readonly kind: 'admin'; readonly tenant: string }
  | { readonly kind: 'session'; readonly tenant: string; readonly sessionId: string }

export const sessionPrefix = 'mrs-'

export function newSessionKey(): string {
  return sessionPrefix + randomBytes(32).toString('base64url')
}

/** The form in which a key is stored. The digest of 32 random bytes needs no salt: nobody has a table of them. */
export function keyDigest(key: string): string {
  return hash('sha256', key, 'base64url')
}

/** A session that has not ended. Every open session has one of these, used or not, so it is small. */
export class OpenSession {
  readonly id: string
  readonly group: string
  readonly tenant: string
  readonly keyDigest: string
  readonly startedAt: number
  readonly data: SessionData
  readonly caller: Caller
  readonly running = new ArraySet<RunningRequest>()
  readonly dueVersions = new DueVersions()
  ending: SessionEndReason | undefined
  memory: SessionMemory | undefined
  /** Started by this process, and without messages so far. */
  isUnused = false
  loading: Promise<SessionMemory> | undefined
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
    // Not spread, because `data` is a getter that reads the record each time.
    const { id, group, tenant, keyDigest: digest, startedAt } = stored
    return new OpenSession({ id, group, tenant, keyDigest: digest, startedAt, data: storedData(stored) })
  }

  /** Whether nobody has used the session for its time to live. A session with a request under way is in use. */
  get isExpired(): boolean {
    return this.running.size === 0 && this.#expiresAt <= performance.now()
  }

  touch(): void {
    this.#expiresAt = performance.now() + this.data.ttlSeconds * 1000
  }
}

type Sample = Pick<MessageNode, 'call' | 'discarded'> & { readonly lacksTokens?: boolean | undefined }

/** What a session has used up, and its results, counted from its samples, so that a restart finds the same numbers. */
export class SessionTally {
  /** Requests with a reply, complete or lost. Those that failed before anything was sampled do not count. */
  requests = 0
  tokens = 0
  cost = 0
  isCostPartial = false
  interactions = 0
  discarded = 0
  /** Complete replies without the tokens that training takes, whether or not these were asked for. */
  withoutTokens = 0
  /** Complete replies whose tokens were asked for, and are missing. */
  tokensMissing = 0
  damage: MillraceError | undefined

  add({ call, discarded, lacksTokens }: Sample): void {
    const record = call ?? discarded
    if (!record) return
    this.requests += 1
    this.tokens += record.usage.output
    if (record.cost === null) this.isCostPartial = true
    else this.cost += record.cost
    if (call) this.#countReply({ call, lacksTokens }, 1)
    else this.discarded += 1
  }

  lose(reply: Sample): void {
    this.#countReply(reply, -1)
    this.discarded += 1
  }

  regain(reply: Sample): void {
    this.#countReply(reply, 1)
    this.discarded -= 1
  }

  #countReply({ call, lacksTokens }: Sample, sign: 1 | -1): void {
    this.interactions += sign
    if (lacksTokens) this.withoutTokens += sign
    if (call?.tokensMissing) this.tokensMissing += sign
  }
}

/** How many requests are remembered: all choices of one at least. A retry of a forgotten one is a new request. */
const maxRemembered = maxChoices

type Recent<Running> =
  | { readonly kind: 'running'; readonly running: Running }
  | { readonly kind: 'ended'; readonly seq: number }

/** The last requests of one session, for retries. Several may have the same body; a retry is of only one of them. */
export class RecentRequests<Running> {
  /** The newest last. Not a Map: `ArraySet` says what a Map costs when its content changes with every request. */
  readonly #requests: { readonly key: string; recent: Recent<Running> | undefined }[] = []

  /** What a retry waits for; undefined if the model has to be asked, because a retry must not get another request's sample. */
  retried(key: string, isUndelivered: (seq: number) => boolean): Recent<Running> | undefined {
    const same = this.#requests.filter((request) => request.key === key)
    // Undelivered replies come first: retries with the same body look alike, so any of them can take one.
    const undelivered = same.find(({ recent }) => recent?.kind === 'ended' && isUndelivered(recent.seq))
    if (undelivered) return undelivered.recent
    const lost = same.find(({ recent }) => recent === undefined)
    if (lost) {
      // Removed, because the next retry is of another request.
      this.#requests.splice(this.#requests.indexOf(lost), 1)
      return undefined
    }
    const running = same.filter(({ recent }) => recent?.kind === 'running')
    if (running.length > 0) return running.length === 1 ? running[0]?.recent : undefined
    return same.at(-1)?.recent
  }

  begin(key: string, running: Running): void {
    this.#add(key, { kind: 'running', running })
  }

  restore(key: string, seq: number): void {
    this.#add(key, { kind: 'ended', seq })
  }

  end(running: Running, seq?: number): void {
    const request = this.#requests.findLast(({ recent }) => recent?.kind === 'running' && recent.running === running)
    if (request) request.recent = seq === undefined ? undefined : { kind: 'ended', seq }
  }

  #add(key: string, recent: Recent<Running>): void {
    if (this.#requests.length === maxRemembered) this.#requests.shift()
    this.#requests.push({ key, recent })
  }
}

/** Why a session may send no further request, if so. Tokens and cost may be exceeded by the last one. */
export function limitReached(limits: SessionLimits, used: SessionTally, running: number): MillraceError | undefined {
  const { maxRequests, maxTokens, maxCost, maxConcurrent } = limits
  if (maxRequests !== undefined && used.requests + running >= maxRequests) {
    // A running request may yet fail, and then it does not count.
    return used.requests >= maxRequests
      ? limitExhausted('maxRequests', maxRequests)
      : limitBusy('maxRequests', maxRequests)
  }
  if (maxTokens !== undefined && used.tokens >= maxTokens) return limitExhausted('maxTokens', maxTokens)
  if (maxCost !== undefined && used.cost >= maxCost) return limitExhausted('maxCost', maxCost)
  if (maxConcurrent !== undefined && running >= maxConcurrent) return limitBusy('maxConcurrent', maxConcurrent)
  return undefined
}
