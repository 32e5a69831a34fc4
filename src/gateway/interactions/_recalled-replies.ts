import type { ItemOrigin, ReplyMemory } from '../../dialects/index.ts'
import { TimeSlice } from '../../kit/index.ts'
import { isJsonObject, type AssistantMessage, type ItemIds, type Json, type JsonObject } from '../../schema/index.ts'
import type { SessionReader } from '../../store/index.ts'
import { replyIn } from '../sessions/reply-in.ts'
import type { SessionTree } from '../sessions/session-tree.ts'

interface RecalledRepliesOptions {
  readonly sessions: SessionReader
  readonly session: string
  readonly tree: SessionTree
  /** Resolves when all replies that a client may know of are in the store. */
  readonly stored: () => Promise<void> | undefined
}

/** Thrown at the first reference of a request if the replies have not been read. */
const unread = new Error('the request refers to replies that have not been read')

/**
 * The replies of a session, for a request that refers to some. Only the request itself says whether it does, and reading
 * them takes time: so it is read without them at first, and once more with them if it needs them.
 */
export class RecalledReplies implements ReplyMemory {
  readonly #sessions: SessionReader
  readonly #session: string
  readonly #tree: SessionTree
  readonly #stored: RecalledRepliesOptions['stored']
  readonly #replies = new Map<string, AssistantMessage>()
  readonly #origins = new Map<string, ItemOrigin>()
  readonly #others = new Map<string, JsonObject>()
  #isRead = false
  /** Whether a reference of the request was resolved. */
  hasFound = false

  constructor({ sessions, session, tree, stored }: RecalledRepliesOptions) {
    this.#sessions = sessions
    this.#session = session
    this.#tree = tree
    this.#stored = stored
  }

  /** Calls `readRequest`, which asks here for what it refers to, and returns its result. */
  async usedBy<Result>(readRequest: () => Result): Promise<Result> {
    try {
      return readRequest()
    } catch (error) {
      if (error !== unread) throw error
    }
    await this.#stored()
    await this.#read()
    return readRequest()
  }

  reply(replyId: string): AssistantMessage | undefined {
    this.#requireRead()
    const found = this.#replies.get(replyId)
    if (found) this.hasFound = true
    return found
  }

  origin(itemId: string): ItemOrigin | undefined {
    this.#requireRead()
    return this.#origins.get(itemId)
  }

  hasOutputOf(callId: string): boolean {
    return this.#tree.hasOutputOf(callId)
  }

  other(itemId: string): JsonObject | undefined {
    this.#requireRead()
    const found = this.#others.get(itemId)
    if (found) this.hasFound = true
    return found
  }

  #requireRead(): void {
    if (!this.#isRead) throw unread
  }

  /** Other work has its turns meanwhile. */
  async #read(): Promise<void> {
    this.#isRead = true
    for await (const node of new TimeSlice().over(this.#sessions.bareNodesOf(this.#session))) {
      const { message } = node
      const call = replyIn(node)
      if (call?.replyId === undefined || message.role !== 'assistant') continue
      this.#replies.set(call.replyId, message)
      this.#remember(call.replyId, call.itemIds)
      for (const { api, value } of message.others ?? []) if (api === 'responses') this.#rememberOther(value)
    }
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
