import { isDeepStrictEqual } from 'node:util'
import type { DialectRequest } from '../../dialects/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { ArraySet } from '../../kit/index.ts'
import type { Message, ToolCall } from '../../schema/index.ts'
import type { RunStore } from '../../store/index.ts'
import { choicesAfter } from './choices.ts'
import { conversationTo, replyOutside, replyUnknown, wholeConversation } from './_earlier-conversation.ts'
import { discardedNamed } from '../sessions/discarded-named.ts'
import type { KnownBeginning } from '../sessions/last-path.ts'
import { goneStatus, LiveInteraction, type InteractionEnd, type WaitRules } from './live-interaction.ts'
import { OpenSession, type SessionMemory } from '../sessions/open-session.ts'
import { LiveCount } from './live-count.ts'
import { UpstreamRequest, type UpstreamRequestParts } from './_upstream-request.ts'
import { refuseUntranslatableEarlier } from './_read-request.ts'
import { RecalledReplies } from './_recalled-replies.ts'
import { requestKey } from '../sessions/recent-requests.ts'
import {
  draining,
  limitReached,
  requireDisk,
  sessionDamaged,
  sessionSealed,
  sessionUnknown,
  tooLong,
  tooMuch,
  unpriced,
} from '../_refusals.ts'
import { replayReply } from './_replay-reply.ts'
import { sendError } from './_send-reply.ts'
import type { OpenSessions } from '../sessions/open-sessions.ts'
import { SessionPlace } from './_session-place.ts'
import { IncomingRequest, type InteractionCall, type ReadRequest } from './incoming-request.ts'
import type { Caller } from '../caller.ts'
import type { ClientReply } from './client-reply.ts'
import { gatewayEvents, type InteractionOutcome } from '../gateway-events.ts'
import type { GatewayModel, GatewayModels, HostedTools } from '../gateway-models.ts'
import type { Match } from '../sessions/session-tree.ts'
import type { SessionBounds } from '../sessions/session-bounds.ts'
import type { TreeNode } from '../sessions/tree-node.ts'

/** The leaf of a conversation without messages. */
const noLeaf = -1

/** The conversation of a request that names the reply it continues. */
interface EarlierMessages {
  /** The earlier messages and the request's own. */
  readonly messages: readonly Message[]
  readonly reply: TreeNode
  readonly known: KnownBeginning<TreeNode> | undefined
}

/** The known part of a conversation, and recorded calls by the numbers of their nodes. */
interface MatchedCalls {
  readonly match: Match
  readonly calls: ReadonlyMap<number, readonly ToolCall[]>
}

const noCalls: MatchedCalls['calls'] = new Map()

export interface InteractionsOptions {
  readonly store: RunStore
  readonly models: GatewayModels
  readonly openSessions: OpenSessions
  readonly bounds: SessionBounds
  readonly hostedTools: HostedTools
}

/** All requests under way: reads each, finds its model and its place in its session, and sees it to its end. */
export class Interactions {
  readonly #store: RunStore
  readonly #models: GatewayModels
  readonly #openSessions: OpenSessions
  readonly #bounds: SessionBounds
  readonly #asking = new ArraySet<LiveInteraction | LiveCount>()
  readonly counts: Record<InteractionOutcome, number> = {
    complete: 0,
    repeated: 0,
    counted: 0,
    refused: 0,
    failed: 0,
    abandoned: 0,
  }
  #underWay = 0
  /** Set once no new requests are taken; settles when none is under way. */
  #drained: PromiseWithResolvers<void> | undefined
  /** Why no model is asked any more, not even for requests under way. */
  #end: { readonly reason: MillraceError } | undefined
  #proxied = 0
  readonly #waitRules: WaitRules
  readonly #hostedTools: HostedTools

  constructor(parts: InteractionsOptions) {
    this.#store = parts.store
    this.#models = parts.models
    this.#openSessions = parts.openSessions
    this.#bounds = parts.bounds
    this.#hostedTools = parts.hostedTools
    this.#waitRules = { beatMs: parts.bounds.beatMs, end: undefined }
  }

  /** Requests under way. */
  get running(): number {
    return this.#underWay
  }

  /**
   * Refuses new requests from now on, and those that wait for a backend, because nobody knows when one will take them.
   * Resolves when the others have ended.
   */
  drain(): Promise<void> {
    this.#drained ??= Promise.withResolvers()
    this.#waitRules.end ??= draining()
    for (const asking of this.#asking) asking.abortWaiting(this.#waitRules.end)
    if (this.#underWay === 0) this.#drained.resolve()
    return this.#drained.promise
  }

  /** Like `drain`, but also aborts the requests that run. */
  abort(reason: MillraceError): Promise<void> {
    this.#end = { reason }
    for (const asking of this.#asking) asking.abort(reason)
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
      const status = client.isGone ? goneStatus : sendError(client, incoming.dialect, error)
      this.#onEnd(incoming, 'refused', { answer: { kind: 'broken', error }, status })
    } finally {
      this.#underWay -= 1
      if (this.#underWay === 0) this.#drained?.resolve()
    }
  }

  #admit(call: InteractionCall): void {
    if (this.#drained) throw draining()
    if (this.#underWay + choicesAfter(call) > this.#bounds.maxRunning) {
      throw tooMuch(`${this.#bounds.maxRunning} requests are under way, and no more may be; try again in a moment`)
    }
  }

  #openSession(caller: Caller, id: string): OpenSession {
    const found = this.#openSessions.find(caller, id)
    if (!found) throw sessionUnknown(id)
    // A session that has not ended, but is not among the open sessions either, could not be read when the gateway started.
    if (!(found instanceof OpenSession)) throw found.end ? sessionSealed(id, found.end.why) : sessionDamaged(id)
    if (found.ending) throw sessionSealed(id, found.ending.why)
    return found
  }

  /** Answers a request outside of any session, as a bare proxy: nothing is recorded. */
  async #outside(incoming: IncomingRequest): Promise<void> {
    const { client } = incoming
    const parts = this.#readOutside(incoming)
    const upstream = new UpstreamRequest(incoming, parts)
    await this.#ask(incoming, new LiveInteraction({ upstream, client, waitRules: this.#waitRules }))
    parts.model.client.endSession(parts.sessionId)
  }

  #readOutside(incoming: IncomingRequest): UpstreamRequestParts {
    const { request, model } = incoming.read(this.#models, { hostedTools: this.#hostedTools })
    const { previousReplyId, messages } = request
    // Only a backend that speaks the client's API can know the earlier reply.
    if (previousReplyId !== undefined && model.api !== incoming.call.api) throw replyOutside(previousReplyId)
    this.#proxied += 1
    // Each request has a session id of its own, so that they spread over the backends.
    const sessionId = `proxy-${this.#proxied}`
    return { request, model, messages, sessionId, filledIn: 'nothing', isRecorded: false }
  }

  /** Counts tokens. A session's limits do not apply, because counting uses nothing up. */
  async #count(incoming: IncomingRequest, session: OpenSession | undefined): Promise<void> {
    const { client, counting } = incoming
    const upstream = new UpstreamRequest(
      incoming,
      session ? await this.#readCounted(incoming, session) : this.#readOutside(incoming),
    )
    await this.#ask(incoming, new LiveCount({ upstream, counting, client, waitRules: this.#waitRules }))
  }

  async #readCounted(incoming: IncomingRequest, session: OpenSession): Promise<UpstreamRequestParts> {
    const memory = await this.#openSessions.acquire(session)
    try {
      session.touch()
      const replies = mayRefer(incoming) ? this.#recalled(session, memory) : undefined
      const read = (): ReadRequest => incoming.read(this.#models, { replies, hostedTools: this.#hostedTools })
      const { request, model } = replies ? await replies.usedBy(read) : read()
      const earlier = await this.#earlierThan(request, { incoming, model, session, memory })
      const messages = earlier?.messages ?? request.messages
      const filledIn = filledInto(request, replies)
      return { request, model, messages, sessionId: session.id, filledIn, isRecorded: false }
    } finally {
      this.#openSessions.release(session)
    }
  }

  async #inSession(incoming: IncomingRequest, session: OpenSession): Promise<void> {
    const { journal } = this.#store
    requireDisk(journal)
    const acquired = this.#openSessions.acquire(session)
    const memory = acquired instanceof Promise ? await acquired : acquired
    try {
      const { call, client } = incoming
      const replies = mayRefer(incoming) ? this.#recalled(session, memory) : undefined
      const hostedTools = this.#hostedTools
      const aids = { replies, lastBody: memory.lastBody, isRecorded: true, hostedTools } as const
      const read = (): ReadRequest => incoming.read(this.#models, aids)
      const { request, model, continued } = replies ? await replies.usedBy(read) : read()
      const earlier =
        request.previousReplyId === undefined
          ? undefined
          : await this.#earlierThan(request, { incoming, model, session, memory })
      const messages = earlier?.messages ?? request.messages
      const find = (): Match =>
        earlier?.known
          ? memory.tree.matchAfter(earlier.known, messages)
          : memory.tree.match(
              messages,
              continued && { count: continued.known.length, node: continued.node },
              request.replyNames,
            )
      const found = this.#withCalls(find, session, memory)
      const { match, calls } = found instanceof Promise ? await found : found
      // Checked only now, because the session may have ended while something was read.
      if (session.ending) throw sessionSealed(session.id, session.ending.why)
      const isRetry = call.retryCount > 0 && match.known === messages.length
      const repeated = isRetry ? this.#repeat(incoming, request, { session, memory, leaf: match.end.seq }) : undefined
      if (repeated) {
        session.touch()
        const end = await repeated
        this.#onEnd(incoming, end.answer.kind === 'complete' ? 'repeated' : outcomeOf(end), end)
        return
      }
      if (session.data.limits.maxCost !== undefined && !model.client.price) throw unpriced(model.name)
      // The first of several choices is refused already if there is no room for all of them.
      const refusal = limitReached(session.data.limits, memory.tally, session.running.size + choicesAfter(call))
      if (refusal) throw refusal
      const { maxMessages } = this.#bounds
      if (memory.tree.size + messages.length - match.known > maxMessages) throw tooLong(maxMessages)
      // A client that continues a reply has got it. Nothing follows an unheard reply, so only the last known node can be one.
      memory.unheard.hear(match.end.seq)
      // With other instructions the messages do not match, and the reply is known only by its name.
      if (earlier) memory.unheard.hear(earlier.reply.seq)
      const record = (): SessionPlace => {
        const leaf = memory.tree.append(messages, match)
        if (call.api === 'chat' && leaf && memory.lastBody.keep(call.body, { request, node: leaf, continued })) {
          memory.tree.shareTextWith(messages, continued?.known.length ?? 0)
        }
        const key = requestKey(call, leaf?.seq ?? noLeaf, request.body)
        return new SessionPlace({ session, memory, journal, leaf, key })
      }
      const asked = memory.tree.inRecordedSpelling(messages, match, calls)
      const parts = { request, model, messages: asked, sessionId: session.id, isRespelled: asked !== messages }
      const filledIn = filledInto(request, replies)
      const upstream = new UpstreamRequest(incoming, { ...parts, filledIn, isRecorded: true })
      await this.#ask(incoming, new LiveInteraction({ upstream, client, record, waitRules: this.#waitRules }))
    } finally {
      this.#openSessions.release(session)
    }
  }

  /** The known part of a conversation, and the calls in it that have to be restored and are not in memory. */
  #withCalls(find: () => Match, session: OpenSession, memory: SessionMemory): MatchedCalls | Promise<MatchedCalls> {
    const match = find()
    return memory.tree.unreadCalls(match).length === 0
      ? { match, calls: noCalls }
      : this.#readCalls(find, session, memory)
  }

  async #readCalls(find: () => Match, session: OpenSession, memory: SessionMemory): Promise<MatchedCalls> {
    const { sessions } = this.#store.reader
    const calls = new Map<number, readonly ToolCall[]>()
    for (;;) {
      // The tree may change while something is read, so the conversation is looked for anew. Each round reads other nodes.
      const match = find()
      const unread = memory.tree.unreadCalls(match).filter((seq) => !calls.has(seq))
      if (unread.length === 0) return { match, calls }
      await this.#openSessions.readable(session, memory)
      for (const seq of unread) {
        const message = sessions.bareNode(session.id, seq)?.message
        const recorded = message?.role === 'assistant' ? (message.tool_calls ?? []) : []
        calls.set(seq, recorded)
        memory.tree.keepCalls(seq, recorded)
      }
    }
  }

  /** The replies that a request may refer to: clients know their ids from the first event on, before they are in the store. */
  #recalled(session: OpenSession, memory: SessionMemory): RecalledReplies {
    const { sessions } = this.#store.reader
    const stored = (): Promise<void> | undefined => this.#openSessions.readable(session, memory)
    return new RecalledReplies({ sessions, session: session.id, tree: memory.tree, stored })
  }

  /** The whole conversation, if the request only names the reply that it continues. */
  async #earlierThan(
    request: DialectRequest,
    {
      incoming,
      model,
      session,
      memory,
    }: { incoming: IncomingRequest; model: GatewayModel; session: OpenSession; memory: SessionMemory },
  ): Promise<EarlierMessages | undefined> {
    const { previousReplyId: replyId } = request
    if (replyId === undefined) return undefined
    const { sessions } = this.#store.reader
    await this.#openSessions.readable(session, memory)
    const leaf = memory.tree.replyNamed(replyId)
    if (!leaf) throw replyUnknown(replyId, await discardedNamed(sessions, session.id, replyId))
    const earlier = await conversationTo(sessions, session.id, leaf.seq)
    const messages = wholeConversation(earlier, request)
    if (incoming.call.api !== 'generate') refuseUntranslatableEarlier(messages, model, incoming.call.api)
    // With other instructions the conversation differs from its first message on.
    const isAfter = isDeepStrictEqual(messages.slice(0, earlier.messages.length), earlier.messages)
    return { messages, reply: leaf, known: isAfter ? { count: earlier.messages.length, node: leaf } : undefined }
  }

  /** The answer to an earlier request with the same body, if there is one or will be. */
  #repeat(
    { call, client, dialect }: IncomingRequest,
    request: DialectRequest,
    { session, memory, leaf }: { session: OpenSession; memory: SessionMemory; leaf: number },
  ): Promise<InteractionEnd> | undefined {
    const recent = memory.recent.retried(requestKey(call, leaf, request.body))
    if (recent?.kind === 'running') return recent.running.join(client, request)
    const { reader, journal } = this.#store
    const options = { sessions: reader.sessions, journal, session: session.id, client, dialect, request }
    return recent && replayReply({ ...options, seq: recent.seq, memory })
  }

  async #ask(incoming: IncomingRequest, interaction: LiveInteraction | LiveCount): Promise<void> {
    if (this.#end) throw this.#end.reason
    this.#asking.add(interaction)
    const end = await interaction.start()
    this.#asking.delete(interaction)
    this.#onEnd(incoming, outcomeOf(end), end)
  }

  #onEnd(incoming: IncomingRequest, outcome: InteractionOutcome, { answer, status }: InteractionEnd): void {
    this.counts[outcome] += 1
    if (!gatewayEvents.hasSubscribers) return
    const { call, session, request, model, startedAt } = incoming
    const reply = answer.kind === 'counted' ? undefined : answer.reply
    gatewayEvents.publish({
      kind: 'interaction-end',
      folder: this.#store.folder,
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

/** Whether a request may refer to replies or items by their ids: only Responses has that. */
function mayRefer({ call }: IncomingRequest): boolean {
  return call.api === 'responses'
}

function filledInto(
  { previousReplyId }: DialectRequest,
  replies: RecalledReplies | undefined,
): UpstreamRequestParts['filledIn'] {
  if (replies?.hasFound) return 'items'
  return previousReplyId === undefined ? 'nothing' : 'beginning'
}

function outcomeOf({ answer, status }: InteractionEnd): InteractionOutcome {
  if (answer.kind !== 'broken') return answer.kind
  const isUnwanted = answer.error.code === 'cancelled' || answer.error.code === 'session_ended'
  const isGivenUp = answer.reply ? answer.reply.status === 'aborted' : status === goneStatus
  return isGivenUp && isUnwanted ? 'abandoned' : 'failed'
}
