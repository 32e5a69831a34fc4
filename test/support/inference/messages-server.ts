import { isJsonObject } from '../../../src/schema/index.ts'

/** A block of a Messages conversation, as the API's documentation has it. */
export interface Block {
  readonly type: string
  readonly [field: string]: unknown
}

export interface Turn {
  readonly role: string
  readonly content: readonly Block[]
}

export interface MessagesBody {
  readonly model: string
  readonly max_tokens: number
  readonly system?: readonly Block[]
  readonly messages: readonly Turn[]
  readonly stream?: boolean
  readonly [field: string]: unknown
}

/** A whole reply. */
export function messagesReply(content: readonly Block[], more: object = {}): object {
  return {
    id: 'msg_1',
    type: 'message',
    role: 'assistant',
    model: 'm',
    content,
    stop_reason: content.some(({ type }) => type === 'tool_use') ? 'tool_use' : 'end_turn',
    stop_sequence: null,
    usage: { input_tokens: 7, cache_read_input_tokens: 5, cache_creation_input_tokens: 2, output_tokens: 3 },
    ...more,
  }
}

/** The events of the same reply as a stream. Texts come in pieces of three characters. */
export function messagesEvents(content: readonly Block[], more: { stop_reason?: string } = {}): object[] {
  const {
    content: _whole,
    stop_reason: stopReason,
    usage,
    ...head
  } = messagesReply(content, more) as {
    content: unknown
    stop_reason: unknown
    usage: object
  }
  return [
    {
      type: 'message_start',
      message: { ...head, content: [], stop_reason: null, usage: { ...usage, output_tokens: 1 } },
    },
    { type: 'ping' },
    ...content.flatMap((block, index) => [
      { type: 'content_block_start', index, content_block: emptied(block) },
      ...piecesOf(block).map((delta) => ({ type: 'content_block_delta', index, delta })),
      { type: 'content_block_stop', index },
    ]),
    { type: 'message_delta', delta: { stop_reason: stopReason, stop_sequence: null }, usage: { output_tokens: 3 } },
    { type: 'message_stop' },
  ]
}

/** One event as it goes over the wire. */
export function eventText(event: object): string {
  const { type } = event as { type: string }
  return `event: ${type}\ndata: ${JSON.stringify(event)}\n\n`
}

/** What is wrong with a request by the rules of the API, if anything. */
export function faultIn(body: MessagesBody): string | undefined {
  if (!Number.isInteger(body.max_tokens)) return 'max_tokens: field required'
  if (body.messages[0]?.role !== 'user') return 'messages: first message must use the user role'
  for (const [index, { role, content }] of body.messages.entries()) {
    const before = body.messages[index - 1]
    if (before?.role === role) return `messages.${index}: roles must alternate`
    if (content.length === 0) return `messages.${index}: content must not be empty`
    if (content.some(({ type, text }) => type === 'text' && String(text).trim() === '')) {
      return `messages.${index}: text content blocks must contain non-whitespace text`
    }
    if (content.some(({ type, input }) => type === 'tool_use' && !isJsonObject(input))) {
      return `messages.${index}: input should be an object`
    }
    if (isJsonObject(body['thinking']) && content.some(({ type }) => type === 'tool_use')) {
      const first = content[0]?.type
      if (first !== 'thinking' && first !== 'redacted_thinking') return `messages.${index}.0: expected thinking`
      if (content.some(({ type, signature }) => type === 'thinking' && signature === undefined))
        return `messages.${index}: signature: field required`
    }
    const asked = idsOf(before, 'tool_use', 'id')
    const answered = idsOf(body.messages[index], 'tool_result', 'tool_use_id')
    if (asked.join() !== answered.join()) return `messages.${index}: tool_use ids without tool_result blocks`
  }
  return undefined
}

function idsOf(turn: Turn | undefined, type: string, field: string): string[] {
  return (turn?.content ?? []).filter((block) => block.type === type).map((block) => String(block[field]))
}

function emptied(block: Block): Block {
  if (block.type === 'text') return { ...block, text: '' }
  if (block.type === 'thinking') return { ...block, thinking: '', signature: '' }
  return 'input' in block ? { ...block, input: {} } : block
}

function piecesOf(block: Block): object[] {
  if (block.type === 'text') return cut(block['text']).map((text) => ({ type: 'text_delta', text }))
  if (block.type === 'thinking') {
    const pieces = cut(block['thinking']).map((thinking) => ({ type: 'thinking_delta', thinking }))
    return [...pieces, { type: 'signature_delta', signature: block['signature'] }]
  }
  if (!('input' in block)) return []
  const json = JSON.stringify(block['input'])
  const pieces = json === '{}' ? [''] : cut(json)
  return pieces.map((piece) => ({ type: 'input_json_delta', partial_json: piece }))
}

function cut(text: unknown): string[] {
  return String(text).match(/[\s\S]{1,3}/gu) ?? []
}
