import type { Json, JsonObject, Message } from '../schema/index.ts'
import { AssistantDraft } from './_assistant-draft.ts'
import { isAbsent, isJsonObject, isList } from './_json.ts'
import { rejected } from './_rejected.ts'
import { anyText, optionalText, requiredText } from './_request-fields.ts'
import { readContent, readSpoken } from './_responses-content.ts'
import { itemOrigin } from './_responses-ids.ts'
import { decodeReasoning } from './_responses-reasoning.ts'
import { additionalTools } from './_responses-tools.ts'
import type { ReplyMemory } from './server-dialect.ts'
import type { ClientTool, ToolNames } from './_tool-names.ts'
import { freeformArguments } from './tool-input.ts'
import type { Untranslatable } from './_untranslatable.ts'

/** Other items than calls that a model or its server writes. */
const modelItems: ReadonlySet<string> = new Set(['mcp_list_tools', 'mcp_approval_request', 'compaction'])

/** Settings that an item may change for the turns after it. They are also fields of the request, which has the last word. */
const updatedSettings: ReadonlySet<string> = new Set(['type', 'id', 'reasoning', 'text'])

/** One reply of a model: several items, one message. */
class Turn extends AssistantDraft {
  /** The id of the reply, if an item's id tells it. */
  replyId: string | undefined
  /** The first id among the turn's items, whoever made it. */
  itemId: string | undefined
  hasSpoken = false
  /** Whether the turn has calls of other tools than functions, whose outputs must follow. */
  hasCalled = false

  /**
   * Whether the next item may begin another turn, if no ids tell. A model thinks, speaks, then calls; after a call, outputs
   * must follow first.
   */
  get mayBeOver(): boolean {
    return this.hasSpoken && !this.hasCalled && this.calls.length === 0
  }
}

/** Puts the items of an input together into messages. */
export class ItemReader {
  /** The names of replies among the messages, or of one of their items, by place. */
  readonly names = new Map<number, string>()
  readonly #messages: Message[]
  readonly #untranslatable: Untranslatable
  readonly #memory: ReplyMemory | undefined
  /** The tools of the request, if it is translated. */
  readonly #tools: ToolNames | undefined
  #turn: Turn | undefined

  constructor(
    messages: Message[],
    untranslatable: Untranslatable,
    { memory, tools }: { memory?: ReplyMemory | undefined; tools?: ToolNames | undefined },
  ) {
    this.#messages = messages
    this.#untranslatable = untranslatable
    this.#memory = memory
    this.#tools = tools
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
        // Arguments that are no valid JSON are the model's fault, and are kept as they are.
        this.#call(item, 'function', anyText(item, 'arguments', `${at}.`), at)
        return
      case 'function_call_output':
        this.#output(item, at)
        return
      case 'reasoning':
        this.#reasoning(item, at)
        return
      case 'item_reference':
        this.#reference(item, at)
        return
      default:
        if (this.#tools && this.#translated(item, type, at)) return
        this.#untranslatable.add(`${at}.type ${type}`)
        this.#other(item, type)
    }
  }

  /** Reads an item that only this API has, if other APIs can say the same. Returns whether they can. */
  #translated(item: JsonObject, type: string, at: string): boolean {
    switch (type) {
      case 'custom_tool_call':
        this.#call(item, 'custom', freeformArguments(anyText(item, 'input', `${at}.`)), at)
        return true
      case 'custom_tool_call_output':
        this.#output(item, at)
        return true
      case additionalTools:
        // These tools were read with those of the request.
        return true
      case 'configuration_update':
        if (!Object.keys(item).every((key) => updatedSettings.has(key))) return false
        this.#untranslatable.addDropped(`${at}.type ${type}`)
        return true
      default:
        return false
    }
  }

  #call(item: JsonObject, kind: ClientTool['kind'], written: string, at: string): void {
    const name = requiredText(item, 'name', `${at}.`)
    const namespace = optionalText(item, 'namespace', `${at}.`)
    const called = this.#tools?.nameOf({ kind, name, namespace }) ?? name
    this.#turnOf(item).addCall(requiredText(item, 'call_id', `${at}.`), called, written)
  }

  #output(item: JsonObject, at: string): void {
    const tool_call_id = requiredText(item, 'call_id', `${at}.`)
    const content = readContent(item['output'], `${at}.output`, this.#untranslatable)
    this.#add({ role: 'tool', tool_call_id, content })
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
    // As in replies: a server that shows the reasoning itself has it in `content`, others have a summary.
    turn.reasoning += joinedTexts(content, `${at}.content`) || joinedTexts(summary, `${at}.summary`) || (decoded ?? '')
  }

  /** Reads a reference: a client that relies on replies being kept sends the ids of their items instead of the items. */
  #reference(item: JsonObject, at: string): void {
    const id = requiredText(item, 'id', `${at}.`)
    const origin = itemOrigin(id) ?? this.#memory?.origin(id)
    const reply = origin && this.#memory?.reply(origin.replyId)
    if (!reply) {
      this.#referenceToOther(item, id, at)
      return
    }
    const turn = this.#turnOf(item, origin.kind === 'fc' ? 'goes-on' : 'begins', origin)
    // A reply that alternated between thinking and speaking has several items of a kind; the first one stands for all of
    // them.
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

  /** Reads a reference to an item that Chat has no words for, or to an unknown item. */
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
   * Adds an item that Chat has no words for. It is kept as it came, so that items that differ give messages that differ.
   * Items of a model, or of its server, are part of a turn; all others are the client's.
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

  /**
   * Whether the server ran the tool, so that its output is part of the reply. Only the memory tells it from a client's own
   * output.
   */
  #isServerOutput(callId: Json | undefined): boolean {
    return typeof callId === 'string' && this.#memory?.hasOutputOf(callId) === true
  }

  #add(message: Message): void {
    this.end()
    this.#messages.push(message)
  }

  /** The turn that a model's item belongs to: its id tells, or else the usual order of items. */
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

/** The type of an item without one: the API lets two kinds omit it, and only messages have a role. */
function usualType({ role, id }: JsonObject): string {
  return isAbsent(role) && typeof id === 'string' ? 'item_reference' : 'message'
}

/** Joins the texts of parts, which are paragraphs. */
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
