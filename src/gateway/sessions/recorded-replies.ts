import {
  type DialectRequest,
  isSigned,
  type ItemOrigin,
  keepSignedReply,
  type ReplyMemory,
  type ServerDialect,
} from '../../apis/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { TimeSlice } from '../../kit/index.ts'
import {
  type AssistantMessage,
  type DiscardRecord,
  isJsonList,
  isJsonObject,
  type ItemIds,
  type Json,
  type JsonObject,
  type Message,
  type MessageNode,
} from '../../schema/index.ts'
import type { Journal, SessionReader } from '../../store/index.ts'
import { type ClientReply, sendReply } from '../../endpoint/index.ts'
import { clientClosedStatus, type RequestEnd } from '../requests/client-reply.ts'
import type { SessionMemory } from './session-memory.ts'
import { replyIn, type SessionTree } from './session-tree.ts'

export class RecalledReplies implements ReplyMemory {
  readonly #tree: SessionTree
  readonly #replies = new Map<string, AssistantMessage>()
  readonly #origins = new Map<string, ItemOrigin>()
  readonly #others = new Map<string, JsonObject>()
  hasFound = false

  constructor(tree: SessionTree) {
    this.#tree = tree
  }

  async load(nodes: Iterable<MessageNode>): Promise<void> {
    for await (const node of new TimeSlice().over(nodes)) {
      const { message } = node
      const call = replyIn(node)
      if (call?.replyId === undefined || message.role !== 'assistant') continue
      this.#replies.set(call.replyId, message)
      this.#remember(call.replyId, call.itemIds)
      for (const { api, value } of message.others ?? []) if (api === 'responses') this.#rememberOther(value)
    }
  }

  reply(replyId: string): AssistantMessage | undefined {
    const found = this.#replies.get(replyId)
    if (found) this.hasFound = true
    return found
  }

  origin(itemId: string): ItemOrigin | undefined {
    return this.#origins.get(itemId)
  }

  hasOutputOf(callId: string): boolean {
    return this.#tree.hasOutputOf(callId)
  }

  other(itemId: string): JsonObject | undefined {
    const found = this.#others.get(itemId)
    if (found) this.hasFound = true
    return found
  }

  #rememberOther(value: Json): void {
    const id = isJsonObject(value) ? value['id'] : undefined
    if (isJsonObject(value) && typeof id === 'string') this.#others.set(id, value)
  }

  #remember(replyId: string, itemIds: ItemIds = {}): void {
    for (const kind of ['rs', 'msg', 'fc'] as const) {
      for (const [number, id] of (itemIds[kind] ?? []).entries()) this.#origins.set(id, { replyId, kind, number })
    }
  }
}

/** Whether a request in Responses refers to an item of an earlier reply by its id. Such an item may have no type. */
export function refersToItems({ input }: JsonObject): boolean {
  if (!isJsonList(input)) return false
  return input.some((item) => {
    if (!isJsonObject(item)) return false
    const { type, role, id } = item
    const isUntyped = (type ?? role ?? null) === null
    return type === 'item_reference' || (isUntyped && typeof id === 'string')
  })
}

export function unknownReply(replyId: string, lost?: DiscardRecord): MillraceError {
  const name = replyId.slice(0, 80)
  const why = lost
    ? `reply ${name} did not end (${lost.why}), so no request can continue from it`
    : `this session has no reply ${name} to continue from`
  const message = `${why}. Send the conversation in input instead.`
  return new MillraceError('model_rejected', message, { data: { status: 404, param: 'previous_response_id' } })
}

export function replyOutside(replyId: string): MillraceError {
  const message = `previous_response_id (${replyId.slice(0, 80)}) needs a session, which records its replies, but this request has no session. Start one with POST /v1/sessions and send its key with the request, or send the conversation in input instead.`
  return new MillraceError('model_rejected', message, { data: { status: 404, param: 'previous_response_id' } })
}

interface EarlierConversation {
  readonly messages: readonly Message[]
  /** Whether the first message is the instructions of the request that the reply answers. */
  readonly hasInstructions: boolean
}

/** The conversation that a request continues, and its own messages. Instructions hold only for the request that gives them. */
export function wholeConversation(
  earlier: EarlierConversation,
  { messages, hasInstructions }: DialectRequest,
): Message[] {
  const earlierMessages = earlier.messages.slice(earlier.hasInstructions ? 1 : 0)
  const own = hasInstructions ? 1 : 0
  return [...messages.slice(0, own), ...earlierMessages, ...messages.slice(own)]
}

/** Reads the conversation up to a reply, which is on disk. Other work has its turns meanwhile. */
export async function conversationTo(
  sessions: SessionReader,
  session: string,
  leaf: number,
): Promise<EarlierConversation> {
  const nodes = new Map<number, MessageNode>()
  const slice = new TimeSlice()
  for (const node of sessions.bareNodesOf(session)) {
    nodes.set(node.seq, node)
    if (node.seq === leaf) break
    if (slice.isOver) await slice.rest()
  }
  const messages: Message[] = []
  const reply = nodes.get(leaf)
  let node = reply
  while (node) {
    messages.push(node.message)
    keepReasoning(node)
    node = node.parent === null ? undefined : nodes.get(node.parent)
  }
  return { messages: messages.toReversed(), hasInstructions: (reply && replyIn(reply)?.hasInstructions) === true }
}

/** Keeps signed reasoning with its message: a backend that wrote it can then be sent it again. */
function keepReasoning(node: MessageNode): void {
  const call = replyIn(node)
  if (call?.original && isSigned(call.original)) keepSignedReply(node.message, call)
}

/** How the reply of that name was lost, if one was. Names of lost replies are not kept in memory. */
export async function discardedNamed(
  sessions: SessionReader,
  session: string,
  replyId: string,
): Promise<DiscardRecord | undefined> {
  for await (const { discarded } of new TimeSlice().over(sessions.bareNodesOf(session))) {
    if (discarded?.replyId === replyId) return discarded
  }
  return undefined
}

interface ReplayOptions {
  readonly sessions: SessionReader
  readonly session: string
  readonly seq: number
  readonly client: ClientReply
  readonly dialect: ServerDialect
  readonly request: DialectRequest
  readonly journal: Journal
  readonly memory: SessionMemory
}

/** Sends a reply again, from its record: nothing is sampled for a client that only did not get it. */
export async function replayReply(options: ReplayOptions): Promise<RequestEnd> {
  const { memory, seq } = options
  // A client that gets the reply must find it recorded as complete.
  const undelivered = memory.markDelivered(seq)
  let wasDelivered = false
  try {
    const end = await sendRecorded(options)
    wasDelivered = end.status !== clientClosedStatus
    return end
  } finally {
    // Another client may have asked for it again, too, and gone.
    if (wasDelivered) memory.markDelivered(seq)
    else if (undelivered) memory.markUndelivered(seq, undelivered)
  }
}

async function sendRecorded(options: ReplayOptions): Promise<RequestEnd> {
  const { sessions, journal, session, seq, client, dialect, request } = options
  // The reply, or that it counts as delivered, may not be in the store yet.
  await journal.durable()
  // Tokens are read only for clients that want them.
  const node = request.wantsTokenIds ? await nodeWithTokens(sessions, session, seq) : sessions.bareNode(session, seq)
  if (!node?.call || node.message.role !== 'assistant') {
    throw new MillraceError('internal', `session ${session} has no reply ${seq} to repeat`)
  }
  const { message, call, tokens, at } = node
  const { finishReason, usage, stopSequence, stopReason, original, itemIds, replyId = '' } = call
  const head = { id: replyId, itemIds, model: request.model, createdAt: Math.floor(at / 1000), request }
  const answer = { kind: 'complete', replyId } as const
  await client.ready?.()
  if (client.isGone) return { answer, status: clientClosedStatus }
  const reply = {
    message,
    finishReason,
    usage,
    ...(stopSequence !== undefined && { stopSequence }),
    ...(stopReason !== undefined && { stopReason }),
    ...(original && { original }),
    ...(tokens && { tokens }),
  }
  sendReply(client, dialect, head, reply)
  return { answer, status: 200 }
}

/** A node with its tokens. Prompts build on each other, so all nodes before it are read. Other work has its turns meanwhile. */
export async function nodeWithTokens(
  sessions: SessionReader,
  session: string,
  seq: number,
): Promise<MessageNode | undefined> {
  const slice = new TimeSlice()
  for (const node of sessions.nodesOf(session)) {
    if (node.seq === seq) return node
    if (slice.isOver) await slice.rest()
  }
  return undefined
}
