import {
  type ContentPart,
  isJsonList,
  isJsonObject,
  type Json,
  type JsonObject,
  type Message,
} from '../../schema/index.ts'
import {
  anyText,
  AssistantDraft,
  contentOf,
  imagePart,
  isAbsent,
  optionalText,
  rejected,
  requiredText,
  type TypedObject,
  typedObjects,
  type Unsupported,
} from '../request-fields.ts'
import type { ReplyMemory } from '../server-side.ts'
import { freeformArguments } from '../tool-input.ts'
import { additionalTools } from './read-tools.ts'
import type { ClientTool, ToolNames } from './tool-names.ts'
import { decodeReasoning, itemOrigin } from './write-reply.ts'

const modelItems: ReadonlySet<string> = new Set(['mcp_list_tools', 'mcp_approval_request', 'compaction'])

/** Settings that an item may change for the turns after it. They are also fields of the request, which has the last word. */
const updatedSettings: ReadonlySet<string> = new Set(['type', 'id', 'reasoning', 'text'])

class Turn extends AssistantDraft {
  /** The id of the reply, if an item's id tells it. */
  replyId: string | undefined
  /** The first id among the turn's items, whoever made it. */
  itemId: string | undefined
  hasSpoken = false
  /** Whether the turn has calls of other tools than functions, whose outputs must follow. */
  hasCalled = false

  /** Whether the next item may begin another turn, if no ids tell: a model thinks, speaks, then calls. */
  get mayBeOver(): boolean {
    return this.hasSpoken && !this.hasCalled && this.calls.length === 0
  }
}

export class ItemReader {
  /** The names of replies among the messages, or of one of their items, by place. */
  readonly names = new Map<number, string>()
  readonly #messages: Message[]
  readonly #unsupported: Unsupported
  readonly #memory: ReplyMemory | undefined
  readonly #tools: ToolNames | undefined
  #turn: Turn | undefined

  constructor(
    messages: Message[],
    unsupported: Unsupported,
    { memory, tools }: { memory?: ReplyMemory | undefined; tools?: ToolNames | undefined },
  ) {
    this.#messages = messages
    this.#unsupported = unsupported
    this.#memory = memory
    this.#tools = tools
  }

  read(item: Json | undefined, at: string): void {
    if (!isJsonObject(item)) throw rejected(at, 'must be an item: an object with a type, or with a role and content')
    // The API lets two kinds omit their type, and only messages have a role.
    const isReference = isAbsent(item['role']) && typeof item['id'] === 'string'
    const type = item['type'] ?? (isReference ? 'item_reference' : 'message')
    if (typeof type !== 'string') throw rejected(`${at}.type`, 'must be the name of a kind of item, such as "message"')
    if (type === 'message') this.#message(item, at)
    // Arguments that are no valid JSON are the model's fault, and are kept as they are.
    else if (type === 'function_call') this.#call(item, 'function', anyText(item, 'arguments', `${at}.`), at)
    else if (type === 'function_call_output') this.#output(item, at)
    else if (type === 'reasoning') this.#reasoning(item, at)
    else if (type === 'item_reference') this.#reference(item, at)
    else if (!this.#tools || !this.#translated(item, type, at)) {
      this.#unsupported.add(`${at}.type ${type}`)
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
        return true
      case 'configuration_update':
        if (!Object.keys(item).every((key) => updatedSettings.has(key))) return false
        this.#unsupported.addDropped(`${at}.type ${type}`)
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
    const content = readContent(item['output'], `${at}.output`, this.#unsupported)
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
      readSpoken(turn, content, `${at}.content`, this.#unsupported)
    } else if (role === 'user' || role === 'system' || role === 'developer') {
      this.#add({ role, content: readContent(content, `${at}.content`, this.#unsupported) })
    } else {
      throw rejected(`${at}.role`, 'must be "user", "assistant", "system" or "developer"')
    }
  }

  #reasoning(item: JsonObject, at: string): void {
    const { content, summary, encrypted_content: encoded } = item
    const turn = this.#turnOf(item, 'begins')
    const decoded = typeof encoded === 'string' ? decodeReasoning(encoded) : undefined
    if (typeof encoded === 'string' && decoded === undefined) this.#unsupported.add(`${at}.encrypted_content`)
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
    // A reply that alternated between thinking and speaking has several items of a kind: the first stands for all.
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
      this.#unsupported.add(`${at}.id ${type}`)
      this.#other(other, type)
      return
    }
    this.#unsupported.addProviderContent(`${at}.type item_reference`)
    this.#other({ ...item, type: 'item_reference' }, 'item_reference')
  }

  /** Keeps an item that Chat does not have as it came. Items of a model or its server belong to a turn, others to the client. */
  #other(item: JsonObject, type: string): void {
    const { call_id: callId } = item
    // The server ran the tool, so that its output is part of the reply.
    const isServerOutput = typeof callId === 'string' && this.#memory?.hasOutputOf(callId) === true
    if (type.endsWith('_call') || modelItems.has(type) || isServerOutput) {
      const turn = this.#turnOf(item)
      turn.addOther('responses', item)
      turn.hasCalled ||= typeof callId === 'string'
      return
    }
    const content = [{ type: 'other', api: 'responses', value: item }] as const
    this.#add(typeof callId === 'string' ? { role: 'tool', tool_call_id: callId, content } : { role: 'user', content })
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

function joinedTexts(parts: Json | undefined, at: string): string {
  if (isAbsent(parts)) return ''
  if (!isJsonList(parts)) throw rejected(at, 'must be a list of parts, or left out')
  const texts = parts.map((part, index) => anyText(isJsonObject(part) ? part : {}, 'text', `${at}[${index}].`))
  return texts.join('\n\n')
}

function readContent(content: Json | undefined, at: string, unsupported: Unsupported): string | readonly ContentPart[] {
  if (typeof content === 'string') return content
  return contentOf(Array.from(partsOf(content, at), (part) => readPart(...part, unsupported)))
}

/** Adds the content of the model's own message. Servers split it into any number of parts; together they are its text. */
function readSpoken(draft: AssistantDraft, content: Json | undefined, at: string, unsupported: Unsupported): void {
  if (typeof content === 'string') {
    draft.text += content
    return
  }
  for (const [part, place] of partsOf(content, at)) {
    if (isText(part.type)) draft.text += anyText(part, 'text', `${place}.`)
    else if (part.type === 'refusal') draft.refusal += anyText(part, 'refusal', `${place}.`)
    else {
      unsupported.add(`${place}.type ${part.type}`)
      draft.addOther('responses', part)
    }
  }
}

function partsOf(content: Json | undefined, at: string): Iterable<[TypedObject, string]> {
  if (!isJsonList(content)) throw rejected(at, 'must be a string or a list of parts')
  return typedObjects(content, at)
}

function readPart(part: TypedObject, at: string, unsupported: Unsupported): ContentPart {
  if (isText(part.type)) return { type: 'text', text: anyText(part, 'text', `${at}.`) }
  const image = part.type === 'input_image' ? readImage(part, at, unsupported) : undefined
  if (image) return image
  if (part.type !== 'input_image') unsupported.add(`${at}.type ${part.type}`)
  return { type: 'other', api: 'responses', value: part }
}

/** Reads an image. Undefined if only this API can show it: a file kept by the server, or a detail of its own. */
function readImage(part: JsonObject, at: string, unsupported: Unsupported): ContentPart | undefined {
  const { image_url: url, file_id: fileId } = part
  const detail = optionalText(part, 'detail', `${at}.`)
  if (typeof url === 'string') {
    const image = imagePart(url, detail)
    if (!image) unsupported.add(`${at}.detail ${detail}`)
    return image
  }
  if (!isAbsent(url) || typeof fileId !== 'string') {
    throw rejected(`${at}.image_url`, 'must be a URL, as a string; or give a file_id instead')
  }
  unsupported.add(`${at}.file_id`)
  return undefined
}

/** Whether a part is text. The type depends on the speaker; clients confuse the two, or use Chat's `text`. */
function isText(type: string): boolean {
  return type === 'input_text' || type === 'output_text' || type === 'text'
}
