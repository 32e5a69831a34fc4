import type { Json, JsonObject, Message } from '../schema/index.ts'
import { AssistantDraft } from './_assistant-draft.ts'
import { isAbsent, isJsonObject, isList } from './_json.ts'
import { rejected } from './_rejected.ts'
import { anyText, requiredText } from './_request-fields.ts'
import { readContent, readSpoken } from './_responses-content.ts'
import { itemOrigin } from './_responses-ids.ts'
import { decodeReasoning } from './_responses-reasoning.ts'
import type { ReplyMemory } from './server-dialect.ts'
import type { Untranslatable } from './_untranslatable.ts'

/** What a model or its server writes beside calls. */
const modelItems: ReadonlySet<string> = new Set(['mcp_list_tools', 'mcp_approval_request', 'compaction'])

/** What a model wrote in one reply: several items, one message. */
class Turn extends AssistantDraft {
  /** Which reply it was, where an item's id tells. */
  replyId: string | undefined
  /** The first id of an item that came with one, whoever made it. */
  itemId: string | undefined
  hasSpoken = false
  /** Calls whose outputs are due. */
  hasCalled = false

  /** Without ids: a model thinks, speaks and calls. After a call its outputs are due, so until then nothing begins. */
  get mayBeOver(): boolean {
    return this.hasSpoken && !this.hasCalled && this.calls.length === 0
  }
}

/** Puts the items of an input together into messages. */
export class ItemReader {
  /** What replies among the messages are called, or an item of theirs, by their places. */
  readonly names = new Map<number, string>()
  readonly #messages: Message[]
  readonly #untranslatable: Untranslatable
  readonly #memory: ReplyMemory | undefined
  #turn: Turn | undefined

  constructor(messages: Message[], untranslatable: Untranslatable, memory?: ReplyMemory) {
    this.#messages = messages
    this.#untranslatable = untranslatable
    this.#memory = memory
  }

  read(item: Json | undefined, at: string): void {
    if (!isJsonObject(item)) throw rejected(at, 'must be an item: an object with a type, or with a role and content')
    const type = item['type'] ?? usualType(item)
    if (typeof type !== 'string') throw rejected(`${at}.type`, 'must be the name of a kind of item, such as "message"')
    switch (type) {
      case 'message':
        this.#message(item, at)
        return
      case 'function_call':
        this.#turnOf(item).addCall(
          requiredText(item, 'call_id', `${at}.`),
          requiredText(item, 'name', `${at}.`),
          // Not valid JSON is the model's fault, and goes along as it is.
          anyText(item, 'arguments', `${at}.`),
        )
        return
      case 'function_call_output': {
        const tool_call_id = requiredText(item, 'call_id', `${at}.`)
        const content = readContent(item['output'], `${at}.output`, this.#untranslatable)
        this.#add({ role: 'tool', tool_call_id, content })
        return
      }
      case 'reasoning':
        this.#reasoning(item, at)
        return
      case 'item_reference':
        this.#reference(item, at)
        return
      default:
        this.#untranslatable.add(`${at}.type ${type}`)
        this.#other(item, type)
    }
  }

  end(): void {
    const turn = this.#turn
    if (!turn) return
    const name = turn.replyId ?? turn.itemId
    if (name !== undefined) this.names.set(this.#messages.length, name)
    this.#messages.push(turn.message())
    this.#turn = undefined
  }

  #message(item: JsonObject, at: string): void {
    const { role, content } = item
    if (role === 'assistant') {
      const turn = this.#turnOf(item, 'begins')
      turn.hasSpoken = true
      readSpoken(turn, content, `${at}.content`, this.#untranslatable)
    } else if (role === 'user' || role === 'system' || role === 'developer') {
      this.#add({ role, content: readContent(content, `${at}.content`, this.#untranslatable) })
    } else {
      throw rejected(`${at}.role`, 'must be "user", "assistant", "system" or "developer"')
    }
  }

  #reasoning(item: JsonObject, at: string): void {
    const { content, summary, encrypted_content: encoded } = item
    const turn = this.#turnOf(item, 'begins')
    const decoded = typeof encoded === 'string' ? decodeReasoning(encoded) : undefined
    if (typeof encoded === 'string' && decoded === undefined) this.#untranslatable.add(`${at}.encrypted_content`)
    // As replies are read: a server that shows the reasoning itself has it in `content`, others summarise it.
    turn.reasoning += joinedTexts(content, `${at}.content`) || joinedTexts(summary, `${at}.summary`) || (decoded ?? '')
  }

  /** A client that counts on replies being kept sends the ids of their items instead of them. */
  #reference(item: JsonObject, at: string): void {
    const id = requiredText(item, 'id', `${at}.`)
    const origin = itemOrigin(id) ?? this.#memory?.origin(id)
    const reply = origin && this.#memory?.reply(origin.replyId)
    if (!reply) {
      this.#referenceToOther(item, id, at)
      return
    }
    const turn = this.#turnOf(item, origin.kind === 'fc' ? 'goes-on' : 'begins', origin)
    // A reply that took turns at thinking and speaking has several items of a kind; the first stands for all of them.
    if (origin.kind === 'fc') {
      const call = reply.tool_calls?.[origin.number]
      if (call) turn.calls.push(call)
    } else if (origin.number === 0 && origin.kind === 'rs') {
      turn.reasoning += reply.reasoning_content ?? ''
    } else if (origin.number === 0) {
      turn.hasSpoken = true
      turn.text += reply.content ?? ''
      turn.refusal += reply.refusal ?? ''
    }
  }

  /** To an item that chat has nothing for, or to what nobody here knows. */
  #referenceToOther(item: JsonObject, id: string, at: string): void {
    const other = this.#memory?.other(id)
    const type = other?.['type']
    if (other && typeof type === 'string') {
      this.#untranslatable.add(`${at}.id ${type}`)
      this.#other(other, type)
      return
    }
    this.#untranslatable.addHeld(`${at}.type item_reference`)
    this.#other({ ...item, type: 'item_reference' }, 'item_reference')
  }

  /**
   * An item that chat has nothing for, kept as it came, so that two that differ are two messages. What a model wrote, or its
   * server for it, is part of a turn; the rest is the client's.
   */
  #other(item: JsonObject, type: string): void {
    const { call_id: callId } = item
    if (type.endsWith('_call') || modelItems.has(type) || this.#isServerOutput(callId)) {
      const turn = this.#turnOf(item)
      turn.addOther('responses', item)
      turn.hasCalled ||= typeof callId === 'string'
      return
    }
    const content = [{ type: 'other', api: 'responses', value: item }] as const
    this.#add(typeof callId === 'string' ? { role: 'tool', tool_call_id: callId, content } : { role: 'user', content })
  }

  /** The output of a tool that the server runs is part of its reply. Nothing but that tells it from a client's own. */
  #isServerOutput(callId: Json | undefined): boolean {
    return typeof callId === 'string' && this.#memory?.hasOutputOf(callId) === true
  }

  #add(message: Message): void {
    this.end()
    this.#messages.push(message)
  }

  /** The turn that an item of a model's belongs to: its id tells, or else what usually comes after what. */
  #turnOf({ id }: JsonObject, usually: 'begins' | 'goes-on' = 'goes-on', origin = itemOrigin(id)): Turn {
    const open = this.#turn
    if (open) {
      const areKnown = origin !== undefined && open.replyId !== undefined
      const isOver = areKnown ? origin.replyId !== open.replyId : usually === 'begins' && open.mayBeOver
      if (isOver) this.end()
    }
    this.#turn ??= new Turn()
    this.#turn.replyId ??= origin?.replyId
    if (typeof id === 'string') this.#turn.itemId ??= id
    return this.#turn
  }
}

/** Of an item that does not say it: the API leaves it open for two kinds, of which one has a role. */
function usualType({ role, id }: JsonObject): string {
  return isAbsent(role) && typeof id === 'string' ? 'item_reference' : 'message'
}

/** The parts of a summary are paragraphs. */
function joinedTexts(parts: Json | undefined, at: string): string {
  if (isAbsent(parts)) return ''
  if (!isList(parts)) throw rejected(at, 'must be a list of parts, or left out')
  let joined = ''
  for (const [index, part] of parts.entries()) {
    const text = isJsonObject(part) ? part['text'] : undefined
    if (typeof text !== 'string') throw rejected(`${at}[${index}].text`, 'must be a string')
    joined += index === 0 ? text : `\n\n${text}`
  }
  return joined
}
