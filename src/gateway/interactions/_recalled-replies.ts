import type { ItemOrigin, ReplyMemory } from '../../dialects/index.ts'
import { isJsonObject, type AssistantMessage, type ItemIds, type Json, type JsonObject } from '../../schema/index.ts'
import type { SessionReader } from '../../store/index.ts'
import { replyIn } from '../sessions/reply-in.ts'
import type { SessionTree } from '../sessions/session-tree.ts'

/** The replies of a session, for a request that refers to some. All are read from the store on the first reference. */
export class RecalledReplies implements ReplyMemory {
  readonly #sessions: SessionReader
  readonly #session: string
  readonly #tree: SessionTree
  readonly #replies = new Map<string, AssistantMessage>()
  readonly #origins = new Map<string, ItemOrigin>()
  readonly #others = new Map<string, JsonObject>()
  #isRead = false
  /** Whether a reference of the request was resolved. */
  hasFound = false

  constructor({ sessions, session, tree }: { sessions: SessionReader; session: string; tree: SessionTree }) {
    this.#sessions = sessions
    this.#session = session
    this.#tree = tree
  }

  reply(replyId: string): AssistantMessage | undefined {
    this.#read()
    const found = this.#replies.get(replyId)
    if (found) this.hasFound = true
    return found
  }

  origin(itemId: string): ItemOrigin | undefined {
    this.#read()
    return this.#origins.get(itemId)
  }

  hasOutputOf(callId: string): boolean {
    return this.#tree.hasOutputOf(callId)
  }

  other(itemId: string): JsonObject | undefined {
    this.#read()
    const found = this.#others.get(itemId)
    if (found) this.hasFound = true
    return found
  }

  #read(): void {
    if (this.#isRead) return
    this.#isRead = true
    for (const node of this.#sessions.bareNodesOf(this.#session)) {
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
