import { isDeepStrictEqual } from 'node:util'
import type { ContinuedTokens, DialectRequest } from '../../apis/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { ArraySet } from '../../kit/index.ts'
import type { Message, ToolCall } from '../../schema/index.ts'
import type { JournalClient, RunStore } from '../../store/index.ts'
import {
  draining,
  sessionDamaged,
  sessionEnded,
  sessionUnknown,
  tooManyError,
  priceMissing,
  limitExhausted,
} from '../errors.ts'
import { gatewayEvents, type InteractionOutcome } from '../events.ts'
import { type Caller, limitReached, OpenSession, type SessionMemory } from '../sessions/session-memory.ts'
import type { GatewayModel, GatewayModels, HostedTools } from '../models.ts'
import type { OpenSessions } from '../sessions/open-sessions.ts'
import {
  conversationTo,
  discardedNamed,
  nodeWithTokens,
  RecalledReplies,
  refersToItems,
  replayReply,
  replyOutside,
  unknownReply,
  wholeConversation,
} from '../sessions/recorded-replies.ts'
import {
  choicesAfter,
  IncomingRequest,
  type InteractionCall,
  type ParsedBody,
  refuseUnsupportedEarlier,
  requestKey,
  speaks,
} from './incoming-request.ts'
import { ReplyTokens } from '../sessions/reply-tokens.ts'
import type { SessionBounds } from '../sessions/session-options.ts'
import type { KnownPrefix, Match, TreeNode } from '../sessions/session-tree.ts'
import { callsIn, type ClientReply, sendError } from '../../endpoint/index.ts'
import { clientClosedStatus, type RequestEnd } from './client-reply.ts'
import { type LiveCall, LiveCount, LiveRequest, type WaitRules } from './live-request.ts'
import { ReplyRecording } from './reply-recording.ts'
import { UpstreamRequest, type UpstreamRequestParts } from './upstream-request.ts'

interface ReadSession {
  readonly session: OpenSession
  readonly memory: SessionMemory
}

interface EarlierMessages {
  readonly messages: readonly Message[]
  readonly reply: TreeNode
  readonly known: KnownPrefix | undefined
}

const noLeaf = -1

export interface RequestsOptions {
  readonly store: RunStore
  readonly models: GatewayModels
  readonly openSessions: OpenSessions
  readonly bounds: SessionBounds
  readonly hostedTools: HostedTools
}

/** All requests under way: reads each, finds its model and its place in its session, and sees it to its end. */
export class Requests {
  readonly #parts: RequestsOptions
  readonly #calls = new ArraySet<LiveCall>()
  readonly counts: Record<InteractionOutcome, number> = {
    complete: 0,
    repeated: 0,
    counted: 0,
    refused: 0,
    failed: 0,
    abandoned: 0,
  }
  #underWay = 0
  #drained: PromiseWithResolvers<void> | undefined
  #end: { readonly reason: MillraceError } | undefined
  #proxied = 0
  readonly #waitRules: WaitRules
  readonly #replyTokens = new ReplyTokens()

  constructor(parts: RequestsOptions) {
    this.#parts = parts
    this.#waitRules = { beatMs: parts.bounds.beatMs, end: undefined }
  }

  get running(): number {
    return this.#underWay
  }

  /** Refuses new requests, and those that wait for a backend. Resolves when the others have ended. */
  drain(): Promise<void> {
    this.#drained ??= Promise.withResolvers()
    this.#waitRules.end ??= draining()
    for (const call of this.#calls) call.abortWaiting(this.#waitRules.end)
    if (this.#underWay === 0) this.#drained.resolve()
    return this.#drained.promise
  }

  abort(reason: MillraceError): Promise<void> {
    this.#end = { reason }
    for (const call of this.#calls) call.abort(reason)
    return this.drain()
  }

  /** Never rejects: every error is told to the client. */
  async begin(call: InteractionCall, client: ClientReply): Promise<void> {
    const incoming = new IncomingRequest(call, client)
    this.#underWay += 1
    try {
      this.#admit(call)
      const session = incoming.session === undefined ? undefined : this.#openSession(call.caller, incoming.session)
      if (call.countsOnly) await this.#count(incoming, session)
      else if (session) await this.#inSession(incoming, session)
      else await this.#outside(incoming)
    } catch (thrown) {
      const error = MillraceError.from(thrown, 'internal')
      const status = client.isGone ? clientClosedStatus : sendError(client, incoming.dialect, error)
      this.#onEnd(incoming, 'refused', { answer: { kind: 'broken', error }, status })
    } finally {
      this.#underWay -= 1
      if (this.#underWay === 0) this.#drained?.resolve()
    }
  }

  #admit(call: InteractionCall): void {
    if (this.#drained) throw draining()
    if (this.#underWay + choicesAfter(call) > this.#parts.bounds.maxRunning) {
      throw tooManyError(
        `${this.#parts.bounds.maxRunning} requests are running, which is the limit; try again in a moment`,
      )
    }
  }

  #openSession(caller: Caller, id: string): OpenSession {
    const found = this.#parts.openSessions.find(caller, id)
    if (!found) throw sessionUnknown(id)
    // A session that has not ended, but is not among the open sessions either, could not be read when the gateway started.
    if (!(found instanceof OpenSession)) throw found.end ? sessionEnded(id, found.end.why) : sessionDamaged(id)
    if (found.ending) throw sessionEnded(id, found.ending)
    return found
  }

  /** Answers a request outside of any session, as a bare proxy: nothing is recorded. */
  async #outside(incoming: IncomingRequest): Promise<void> {
    const { client } = incoming
    const parts = this.#readOutside(incoming)
    const upstream = new UpstreamRequest(incoming, parts)
    await this.#ask(incoming, new LiveRequest({ upstream, client, waitRules: this.#waitRules }))
    // A client's own key may come again, so that its backend is remembered.
    if (incoming.call.routingKey === undefined) parts.model.client.endSession(parts.sessionId)
  }

  #readOutside(incoming: IncomingRequest): UpstreamRequestParts {
    const { request, model } = incoming.read(incoming.parse(), this.#parts.models, {
      hostedTools: this.#parts.hostedTools,
    })
    const { previousReplyId, messages } = request
    // Only a backend that speaks the client's API can know the earlier reply.
    if (previousReplyId !== undefined && !speaks(model, incoming.call.api)) throw replyOutside(previousReplyId)
    this.#proxied += 1
    // Without a key of its client, each request has a session id of its own, so that they spread over the backends.
    const sessionId = incoming.call.routingKey ?? `proxy-${this.#proxied}`
    return { request, model, messages, sessionId, filledIn: 'nothing', isRecorded: false }
  }

  /** Counts tokens. A session's limits do not apply, because counting uses nothing up. */
  async #count(incoming: IncomingRequest, session: OpenSession | undefined): Promise<void> {
    const { client, counting } = incoming
    const parts = session
      ? await this.#parts.openSessions.use(session, (memory) => this.#readCounted(incoming, { session, memory }))
      : this.#readOutside(incoming)
    const upstream = new UpstreamRequest(incoming, parts)
    await this.#ask(incoming, new LiveCount({ upstream, counting, client, waitRules: this.#waitRules }))
  }

  async #readCounted(incoming: IncomingRequest, opened: ReadSession): Promise<UpstreamRequestParts> {
    opened.session.touch()
    const parsed = incoming.parse()
    const replies = await this.#recalled(incoming, parsed, opened)
    const { request, model } = incoming.read(parsed, this.#parts.models, {
      replies,
      hostedTools: this.#parts.hostedTools,
    })
    const earlier = await this.#earlierThan(request, { incoming, model, opened })
    const messages = earlier?.messages ?? request.messages
    const filledIn = filledInto(request, replies)
    return { request, model, messages, sessionId: opened.session.id, filledIn, isRecorded: false }
  }

  async #inSession(incoming: IncomingRequest, session: OpenSession): Promise<void> {
    requireDisk(this.#parts.store.journal)
    await this.#parts.openSessions.use(session, (memory) => this.#answer(incoming, { session, memory }))
  }

  /** Answers a request in a session: finds the known part of its conversation, and records the rest and the reply. */
  async #answer(incoming: IncomingRequest, opened: ReadSession): Promise<void> {
    const { session, memory } = opened
    const { call, client } = incoming
    const parsed = incoming.parse(memory.lastBody)
    const { continued } = parsed
    const replies = await this.#recalled(incoming, parsed, opened)
    const aids = { replies, isRecorded: true, hostedTools: this.#parts.hostedTools } as const
    const { request, model } = incoming.read(parsed, this.#parts.models, aids)
    const earlier = await this.#earlierThan(request, { incoming, model, opened })
    const messages = earlier?.messages ?? request.messages
    const before = earlier ? earlier.known : continued?.end
    const calls = new Map<number, readonly ToolCall[]>()
    const tokensRead = new Map<number, ContinuedTokens | undefined>()
    let match: Match
    let continues: ContinuedTokens | undefined
    for (;;) {
      // Nothing is awaited from the last match on until the request is recorded, so that the tree is as it was found.
      match = memory.tree.match(messages, before, request.replyNames)
      const unread = Array.from(match.respelled.values(), ({ seq }) => seq).filter((seq) => !calls.has(seq))
      const reply = model.isExact ? match.end.reply : undefined
      continues = reply && (this.#keptTokens(session.id, reply) ?? tokensRead.get(reply.seq))
      const isRead = !reply || continues !== undefined || tokensRead.has(reply.seq)
      if (unread.length === 0 && isRead) break
      if (unread.length > 0) await this.#readCalls(unread, calls, opened)
      if (reply && !isRead) tokensRead.set(reply.seq, await this.#readTokens(reply, opened))
    }
    // Checked only now, because the session may have ended while something was read.
    if (session.ending) throw sessionEnded(session.id, session.ending)
    const isRetry = call.retryCount > 0 && match.known === messages.length
    const repeated = isRetry ? this.#repeat(incoming, request, match.end.seq, opened) : undefined
    if (repeated) {
      session.touch()
      const end = await repeated
      this.#onEnd(incoming, end.answer.kind === 'complete' ? 'repeated' : outcomeOf(end), end)
      return
    }
    this.#refuseBeyondLimits(incoming, model, opened)
    const { maxMessages } = this.#parts.bounds
    if (memory.tree.size + messages.length - match.known > maxMessages) throw limitExhausted('maxMessages', maxMessages)
    // A client that continues a reply has got it. Nothing follows an undelivered reply, so only the last known node can be one.
    memory.markDelivered(match.end.seq)
    // With other instructions the messages do not match, and the reply is known only by its name.
    if (earlier) memory.markDelivered(earlier.reply.seq)
    const record = (): ReplyRecording => {
      const leaf = memory.tree.append(messages, match)
      if (call.api === 'chat' && leaf) {
        const end = { count: messages.length, node: leaf, respelled: match.respelled }
        memory.lastBody.keep(call.body, { request, end, continued })
      }
      const key = requestKey(call, leaf?.seq ?? noLeaf, request.body)
      const tokens = model.isExact ? this.#replyTokens : undefined
      return new ReplyRecording({ session, memory, journal: this.#parts.store.journal, leaf, key, tokens })
    }
    const asked = memory.tree.inRecordedSpelling(messages, match, calls)
    const upstream = new UpstreamRequest(incoming, {
      request,
      model,
      messages: asked,
      sessionId: session.id,
      isRespelled: asked !== messages,
      filledIn: filledInto(request, replies),
      isRecorded: true,
      continues,
    })
    await this.#ask(incoming, new LiveRequest({ upstream, client, record, waitRules: this.#waitRules }))
  }

  #refuseBeyondLimits({ call }: IncomingRequest, model: GatewayModel, { session, memory }: ReadSession): void {
    const { limits } = session.data
    if (limits.maxCost !== undefined && !model.client.price) throw priceMissing(model.name)
    // The first of several choices is refused already if there is no room for all of them.
    const refusal = limitReached(limits, memory.tally, session.running.size + choicesAfter(call))
    if (refusal) throw refusal
  }

  #keptTokens(session: string, { seq, depth }: TreeNode): ContinuedTokens | undefined {
    const kept = this.#replyTokens.find(session, seq)
    return kept && { ...kept, count: depth }
  }

  /** The tokens of a reply that is not remembered. Undefined if it has none. */
  async #readTokens({ seq, depth }: TreeNode, { session, memory }: ReadSession): Promise<ContinuedTokens | undefined> {
    await this.#parts.openSessions.readable(session, memory)
    const { promptIds, ids } = (await nodeWithTokens(this.#parts.store.reader.sessions, session.id, seq))?.tokens ?? {}
    return promptIds && ids && { count: depth, promptIds, ids }
  }

  async #readCalls(
    unread: readonly number[],
    calls: Map<number, readonly ToolCall[]>,
    { session, memory }: ReadSession,
  ): Promise<void> {
    await this.#parts.openSessions.readable(session, memory)
    for (const seq of unread) {
      const message = this.#parts.store.reader.sessions.bareNode(session.id, seq)?.message
      calls.set(seq, callsIn(message))
    }
  }

  /** The replies that a request in Responses may refer to, read from the store only if it does. */
  async #recalled(
    { call }: IncomingRequest,
    { members }: ParsedBody,
    { session, memory }: ReadSession,
  ): Promise<RecalledReplies | undefined> {
    if (call.api !== 'responses') return undefined
    const replies = new RecalledReplies(memory.tree)
    if (!refersToItems(members)) return replies
    await this.#parts.openSessions.readable(session, memory)
    await replies.load(this.#parts.store.reader.sessions.bareNodesOf(session.id))
    return replies
  }

  async #earlierThan(
    request: DialectRequest,
    asked: { readonly incoming: IncomingRequest; readonly model: GatewayModel; readonly opened: ReadSession },
  ): Promise<EarlierMessages | undefined> {
    const { previousReplyId: replyId } = request
    if (replyId === undefined) return undefined
    const { session, memory } = asked.opened
    const { api } = asked.incoming.call
    const { sessions } = this.#parts.store.reader
    await this.#parts.openSessions.readable(session, memory)
    const reply = memory.tree.replyNamed(replyId)
    if (!reply) throw unknownReply(replyId, await discardedNamed(sessions, session.id, replyId))
    const earlier = await conversationTo(sessions, session.id, reply.seq)
    const messages = wholeConversation(earlier, request)
    if (api !== 'generate') refuseUnsupportedEarlier(messages, asked.model, api)
    // With other instructions the conversation differs from its first message on.
    const count = earlier.messages.length
    const isAfter = isDeepStrictEqual(messages.slice(0, count), earlier.messages)
    return { messages, reply, known: isAfter ? { count, node: reply } : undefined }
  }

  #repeat(
    { call, client, dialect }: IncomingRequest,
    request: DialectRequest,
    leaf: number,
    { session, memory }: ReadSession,
  ): Promise<RequestEnd> | undefined {
    const recent = memory.recent.retried(requestKey(call, leaf, request.body), (seq) => memory.isUndelivered(seq))
    if (recent?.kind === 'running') return recent.running.join(client, request)
    const { reader, journal } = this.#parts.store
    const options = { sessions: reader.sessions, journal, session: session.id, client, dialect, request }
    return recent && replayReply({ ...options, seq: recent.seq, memory })
  }

  async #ask(incoming: IncomingRequest, call: LiveCall): Promise<void> {
    if (this.#end) throw this.#end.reason
    this.#calls.add(call)
    const end = await call.start()
    this.#calls.delete(call)
    this.#onEnd(incoming, outcomeOf(end), end)
  }

  #onEnd(incoming: IncomingRequest, outcome: InteractionOutcome, { answer, status }: RequestEnd): void {
    this.counts[outcome] += 1
    if (!gatewayEvents.hasSubscribers) return
    const { call, session, request, model, startedAt } = incoming
    const reply = answer.kind === 'counted' ? undefined : answer.reply
    gatewayEvents.publish({
      kind: 'interaction-end',
      folder: this.#parts.store.folder,
      outcome,
      api: call.api,
      tenant: call.caller.tenant,
      ...(call.requestId !== undefined && { requestId: call.requestId }),
      ...(session !== undefined && { session }),
      ...(model && { model: model.name }),
      stream: request?.stream ?? false,
      ...(call.countsOnly && { countsOnly: true }),
      status,
      ms: performance.now() - startedAt,
      ...(answer.kind === 'complete' && { replyId: answer.replyId, ...(answer.turn && { turn: answer.turn }) }),
      ...(answer.kind === 'broken' && { error: answer.error }),
      ...(reply && { reply }),
    })
  }
}

function filledInto(
  { previousReplyId }: DialectRequest,
  replies: RecalledReplies | undefined,
): UpstreamRequestParts['filledIn'] {
  if (replies?.hasFound) return 'items'
  return previousReplyId === undefined ? 'nothing' : 'beginning'
}

function outcomeOf({ answer, status }: RequestEnd): InteractionOutcome {
  if (answer.kind !== 'broken') return answer.kind
  const isUnwanted = answer.error.code === 'cancelled' || answer.error.code === 'session_ended'
  const isAborted = answer.reply ? answer.reply.status === 'aborted' : status === clientClosedStatus
  return isAborted && isUnwanted ? 'abandoned' : 'failed'
}

function requireDisk({ failure, pressure }: Pick<JournalClient, 'failure' | 'pressure'>): void {
  if (failure.aborted) throw failure.reason
  if (pressure >= 1) throw tooManyError('the disk is too slow for the requests; try again in a moment')
}
