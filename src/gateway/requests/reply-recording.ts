import {
  type InvalidReply,
  callRecord,
  type CompleteReply,
  costOf,
  roundedMs,
  samplingRecord,
  estimatedUsage,
  withUsage,
} from '../../inference/index.ts'
import { isSigned, type LaterVersion, type PartialReply } from '../../apis/index.ts'
import { isNestedWithin } from '../../kit/index.ts'
import {
  type CallRecord,
  type ClientApi,
  type DiscardReason,
  type ItemIds,
  maxOriginalDepth,
  type OriginalReply,
} from '../../schema/index.ts'
import { completeTokens } from '../../rows/index.ts'
import { type Journal, sessionAttempt } from '../../store/index.ts'
import type { OpenSession, RunningRequest, SessionMemory } from '../sessions/session-memory.ts'
import type { ReplyTokens } from '../sessions/reply-tokens.ts'
import { type ReplyFacts, summedTurn, type TreeNode, type TurnTokens } from '../sessions/session-tree.ts'
import type { UpstreamRequest } from './upstream-request.ts'

interface RecordingOptions {
  readonly session: OpenSession
  readonly memory: SessionMemory
  readonly journal: Journal
  readonly leaf: TreeNode | undefined
  readonly key: string
  /** Where the tokens of the reply are kept for the next turn; undefined if its model does not go on from them. */
  readonly tokens: ReplyTokens | undefined
}

interface ReceivedPart {
  readonly partial: PartialReply | undefined
  readonly replyId: string | undefined
  /** Whether it was aborted on the wire. Then it is recorded even if empty: nobody knows how much was sampled. */
  readonly wasSampling: boolean
}

export class ReplyRecording {
  readonly #options: RecordingOptions
  #reply: (ReplyFacts & { readonly node: TreeNode }) | undefined
  #turn: TurnTokens | undefined

  constructor(options: RecordingOptions) {
    this.#options = options
  }

  enter(request: RunningRequest): void {
    const { session, memory, key } = this.#options
    session.running.add(request)
    session.touch()
    memory.recent.begin(key, request)
  }

  /** How the recorded reply follows the one before it; undefined if either has no tokens, or nobody knows those before it. */
  get turn(): TurnTokens | undefined {
    return this.#turn
  }

  recordComplete(
    upstream: UpstreamRequest,
    given: CompleteReply,
    { replyId, itemIds }: { readonly replyId: string; readonly itemIds: ItemIds | undefined },
  ): void {
    const { memory, leaf, key } = this.#options
    const { dialect, capturesTokens, model, request, messages, dropped } = upstream
    const reply = withUsage(withPrompt(given, request.promptIds), messages, model.client.price)
    const { stopSequence, stopReason, original } = reply
    const tokens = completeTokens(reply, reply.usage)
    const summed = tokens && summedTurn(tokens, leaf?.sum)
    const call: CallRecord = {
      ...callRecord(reply),
      ...factsOf(upstream, reply),
      replyId,
      ...(itemIds && { itemIds }),
      ...(request.hasInstructions && { hasInstructions: true }),
      ...(dropped.length > 0 && { dropped }),
      ...(!tokens && capturesTokens && { tokensMissing: true }),
      ...(stopSequence !== undefined && { stopSequence }),
      ...(stopReason !== undefined && { stopReason }),
      ...(isKept(original, dialect.api) && { original }),
      requestKey: key,
    }
    const facts = { call, lacksTokens: !tokens }
    const node = memory.tree.addSample(leaf, reply.message, { call, ...(reply.tokens && { tokens: reply.tokens }) })
    node.sum = summed?.sum ?? leaf?.sum
    this.#turn = summed?.turn
    if (tokens) this.#options.tokens?.keep(this.#options.session.id, node.seq, { tokens, after: leaf?.reply?.seq })
    this.#reply = { ...facts, node }
    memory.tally.add(facts)
    if (reply.laterVersion) this.#recordLater(node.seq, reply.laterVersion)
  }

  #recordLater(node: number, later: LaterVersion): void {
    const { session, journal } = this.#options
    const { id, dueVersions } = session
    dueVersions.add(later, (version) => {
      if (version === undefined) return
      journal.append({ kind: 'version', rollout: id, attempt: sessionAttempt, node, version })
    })
  }

  recordLost(
    upstream: UpstreamRequest,
    reply: InvalidReply,
    { partial = nothingYet, replyId, wasSampling }: ReceivedPart,
  ): void {
    const { memory, leaf } = this.#options
    const { model, request, messages, dropped } = upstream
    const received = withPrompt(partial, request.promptIds)
    const { message, tokens } = received
    const isEmpty = !message.tool_calls?.length && estimatedUsage(received, []).output === 0
    if (isEmpty && !wasSampling) return
    const usage = estimatedUsage(received, messages)
    const discarded = {
      model: reply.model,
      backend: reply.backend,
      tries: reply.tries,
      ms: roundedMs(reply.ms),
      waitMs: roundedMs(reply.waitMs),
      ...factsOf(upstream, { ...reply, ...partial }),
      ...(replyId !== undefined && { replyId }),
      ...(dropped.length > 0 && { dropped }),
      usage,
      cost: costOf(usage, model.client.price),
      why: reasonOf(reply),
    }
    memory.tree.addSample(leaf, message, { discarded, ...(tokens && { tokens }) })
    memory.tally.add({ discarded })
  }

  /** Resolves when the record is on disk; undefined if it is already. */
  durable(): Promise<void> | undefined {
    return this.#options.journal.durable()
  }

  forget(request: RunningRequest): void {
    this.#options.memory.recent.end(request)
  }

  /** Ends the request. `wasDelivered`: whether a client that asked for the reply was still there. */
  leave(request: RunningRequest, wasDelivered: boolean): void {
    const { session, memory } = this.#options
    const reply = this.#reply
    memory.recent.end(request, reply?.node.seq)
    if (reply && !wasDelivered) memory.markUndelivered(reply.node.seq, reply)
    session.running.delete(request)
    session.touch()
  }
}

function factsOf(
  { dialect, request, isSameApi }: UpstreamRequest,
  reply: Pick<CompleteReply, 'logprobs' | 'tokens'>,
): Pick<CallRecord, 'api' | 'sampling' | 'tools'> {
  // Fields that restrict a reply and cannot be translated restrict it all the same where they are passed on.
  const otherConstraints = request.unsupported.filter((name) =>
    /^(?:response_format|text\.format|tool_choice)\b/.test(name),
  )
  return {
    api: dialect.api,
    sampling: samplingRecord(request, reply, { otherConstraints, isPassed: isSameApi }),
    tools: request.tools.map(({ function: { name } }) => name),
  }
}

const nothingYet: PartialReply = { message: { role: 'assistant', content: null } }

/** Adds the prompt's tokens if the client sent them and the backend, as older ones do, does not repeat them. */
function withPrompt<Reply extends PartialReply>(reply: Reply, promptIds: Int32Array | undefined): Reply {
  if (!promptIds || !reply.tokens || reply.tokens.promptIds) return reply
  return { ...reply, tokens: { ...reply.tokens, promptIds } }
}

/** Whether the original is for a client of its API, which may be sent it again, or for its backend, which signed what it thought. */
function isKept(original: OriginalReply | undefined, api: ClientApi): original is OriginalReply {
  if (!original) return false
  return original.api === api ? isNestedWithin(maxOriginalDepth, original.output) : isSigned(original)
}

function reasonOf({ status, error }: InvalidReply): DiscardReason {
  if (status !== 'aborted') return status
  if (error.code === 'session_ended') return 'session_ended'
  return error.code === 'closed' ? 'shutdown' : 'client_gone'
}
