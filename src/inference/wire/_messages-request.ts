import type { AssistantMessage, ContentPart, JsonObject, Message, ToolCall, ToolMessage } from '../../schema/index.ts'
import { foreignPart, unsayable, type Wording } from './_unsayable.ts'
import { isObject } from './foreign-json.ts'

/** Where the blocks of a message belong: into the system prompt, or into a turn of one of the two sides. */
export function placeOf({ role }: Message): 'system' | 'user' | 'assistant' {
  if (role === 'assistant') return role
  return role === 'system' || role === 'developer' ? 'system' : 'user'
}

/** The content blocks of a message as JSON, separated by commas; empty if it says nothing. */
export function blocksJson(message: Message, wording: Wording): string {
  if (message.role === 'assistant') return assistantBlocks(message)
  return message.role === 'tool' ? toolResult(message, wording) : contentBlocks(message.content, wording)
}

function contentBlocks(content: string | readonly ContentPart[], wording: Wording): string {
  if (typeof content === 'string') return textBlock(content)
  return joined(content.map((part) => partBlock(part, wording)))
}

function partBlock(part: ContentPart, wording: Wording): string {
  if (part.type === 'text') return textBlock(part.text)
  if (part.type === 'image_url') return imageBlock(part.image_url.url, wording)
  if (part.api === 'messages') return JSON.stringify(part.value)
  throw foreignPart(wording, part)
}

/** A block of text, or nothing if the text has no visible character: models write such texts, and the API refuses them. */
function textBlock(text: string): string {
  return /\S/.test(text) ? JSON.stringify({ type: 'text', text }) : ''
}

function imageBlock(url: string, wording: Wording): string {
  if (/^https?:/i.test(url)) return JSON.stringify({ type: 'image', source: { type: 'url', url } })
  // Only the head is matched: the data may be megabytes long.
  const [head, mediaType] = /^data:([^;,]+);base64,/i.exec(url) ?? []
  if (head === undefined) throw unsayable(wording, `an image at "${url.slice(0, 40)}"`, 'messages')
  const data = url.slice(head.length)
  return JSON.stringify({ type: 'image', source: { type: 'base64', media_type: mediaType, data } })
}

/**
 * Blocks that a server wrote, unchanged except for empty texts, which it would refuse, and the input of calls, which the
 * message has.
 */
export function ownBlocks(blocks: readonly JsonObject[], message: Message): string {
  const isEmpty = ({ type, text }: JsonObject): boolean =>
    type === 'text' && typeof text === 'string' && !/\S/.test(text)
  const calls = (message.role === 'assistant' ? message.tool_calls : undefined)?.values()
  const ownBlock = (block: JsonObject): string => {
    const call = block['type'] === 'tool_use' ? calls?.next().value : undefined
    return call ? withInput(block, call) : JSON.stringify(block)
  }
  return joined(blocks.map((block) => (isEmpty(block) ? '' : ownBlock(block))))
}

/**
 * The blocks of an assistant's message. Reasoning is left out: the API takes it back only with its signature, which a
 * message lacks.
 */
function assistantBlocks(message: AssistantMessage): string {
  const { content, refusal = '', tool_calls: calls = [], others = [] } = message
  const own = others.flatMap(({ api, value }) => (api === 'messages' ? [JSON.stringify(value)] : []))
  return joined([...own, textBlock(content || refusal), ...calls.map(toolUse)])
}

function toolUse(call: ToolCall): string {
  return withInput({ type: 'tool_use', id: call.id, name: call.function.name }, call)
}

/** The block with the input of the call, put in as text: a parsed object could not hold every number. */
function withInput({ input: _input, ...block }: JsonObject, { function: { arguments: written } }: ToolCall): string {
  return `${JSON.stringify(block).slice(0, -1)},"input":${inputJson(written)}}`
}

/**
 * The arguments that the model wrote, byte for byte, if they are an object. The API takes nothing else, so other text is put
 * into an object, under the name that Anthropic's documentation gives it.
 */
export function inputJson(written: string): string {
  if (written.trim() === '') return '{}'
  try {
    if (isObject(JSON.parse(written))) return written
  } catch {
    // Not valid: handled like valid JSON that is no object.
  }
  return JSON.stringify({ INVALID_JSON: written })
}

function toolResult({ tool_call_id: id, content, is_error: isError }: ToolMessage, wording: Wording): string {
  const blocks = contentBlocks(content, wording)
  const said = blocks === '' ? '' : `,"content":[${blocks}]`
  return `{"type":"tool_result","tool_use_id":${JSON.stringify(id)}${said}${isError ? ',"is_error":true' : ''}}`
}

function joined(blocks: readonly string[]): string {
  return blocks.filter((block) => block !== '').join(',')
}
