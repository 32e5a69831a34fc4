import type { ApiName, Json, JsonObject } from '../../../src/schema/index.ts'
import { documentsOf, type StreamEvent } from './stream-events.ts'

/** How a client of one API writes its conversation and reads replies: what its SDK would do. */
export interface ApiClient {
  readonly api: ApiName
  readonly path: string
  user(text: string, image?: string): readonly Json[]
  results(results: readonly ToolResult[]): readonly Json[]
  body(conversation: readonly Json[], options: AskOptions): JsonObject
  received(reply: JsonObject): Received
  /** What a stream that is complete comes to. */
  receivedStream(events: readonly StreamEvent[]): Received
}

interface AskOptions {
  readonly stream: boolean
  readonly model?: string
  readonly system?: string
  readonly tools?: boolean
  /** Two of the APIs have no word for it; it goes to the backend all the same. */
  readonly seed?: number
}

interface ToolResult {
  readonly id: string
  readonly text: string
}

/** A reply as a client has it. */
export interface Received {
  readonly id: string
  readonly text: string
  readonly reasoning: string
  readonly calls: readonly ReceivedCall[]
  /** What of the reply goes back into the conversation. */
  readonly items: readonly Json[]
}

interface ReceivedCall {
  readonly id: string
  readonly name: string
  readonly arguments: string
}

/** A picture of one pixel, as base64. */
export const pixel = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='

/** A tool that every model can call. */
const lookUp = {
  name: 'look_up',
  description: 'Looks a word up.',
  parameters: {
    type: 'object',
    properties: { word: { type: 'string' }, language: { type: 'string', enum: ['en', 'de', '日本語'] } },
    required: ['word', 'language'],
    additionalProperties: false,
  },
} as const

interface ChatMessage {
  content?: string | null
  reasoning_content?: string
  tool_calls?: { index?: number; id?: string; function?: { name?: string; arguments?: string } }[]
}

interface ChatDocument {
  readonly id: string
  /** None in an event that says what went wrong. */
  readonly choices?: readonly { readonly message?: ChatMessage; readonly delta?: ChatMessage }[]
}

/** A client of Chat Completions. */
class ChatClient implements ApiClient {
  readonly api = 'chat'
  readonly path = '/v1/chat/completions'

  user(text: string, image?: string): Json[] {
    if (image === undefined) return [{ role: 'user', content: text }]
    const url = `data:image/png;base64,${image}`
    return [
      {
        role: 'user',
        content: [
          { type: 'text', text },
          { type: 'image_url', image_url: { url } },
        ],
      },
    ]
  }

  results(results: readonly ToolResult[]): Json[] {
    return results.map(({ id, text }) => ({ role: 'tool', tool_call_id: id, content: text }))
  }

  body(conversation: readonly Json[], { stream, model = 'sim', system, tools, seed }: AskOptions): JsonObject {
    return {
      model,
      messages: [...(system === undefined ? [] : [{ role: 'system', content: system }]), ...conversation],
      ...(tools && { tools: [{ type: 'function', function: lookUp }] }),
      ...(seed !== undefined && { seed }),
      ...(stream && { stream: true }),
    }
  }

  received(reply: JsonObject): Received {
    const { id, choices } = reply as unknown as ChatDocument
    return receivedMessage(id, choices?.[0]?.message ?? {})
  }

  receivedStream(events: readonly StreamEvent[]): Received {
    const chunks = documentsOf(events) as unknown as ChatDocument[]
    const message: ChatMessage & { content: string; reasoning_content: string } = { content: '', reasoning_content: '' }
    const calls: ReceivedCall[] = []
    for (const delta of chunks.flatMap(({ choices }) => choices?.[0]?.delta ?? [])) {
      message.content += delta.content ?? ''
      message.reasoning_content += delta.reasoning_content ?? ''
      for (const { index = 0, id, function: called } of delta.tool_calls ?? []) {
        const { arguments: before = '', ...begun } = calls[index] ?? { id: id ?? '', name: called?.name ?? '' }
        calls[index] = { ...begun, arguments: before + (called?.arguments ?? '') }
      }
    }
    message.tool_calls = calls.map(({ id, ...called }) => ({ id, function: called }))
    return receivedMessage(chunks[0]?.id ?? '', message)
  }
}

function receivedMessage(id: string, message: ChatMessage): Received {
  const { content, reasoning_content: reasoning, tool_calls: called = [] } = message
  const calls = called.map(({ id: callId = '', function: { name = '', arguments: written = '' } = {} }) => ({
    id: callId,
    name,
    arguments: written,
  }))
  const item: JsonObject = {
    role: 'assistant',
    content: content || null,
    ...(reasoning && { reasoning_content: reasoning }),
    ...(calls.length > 0 && {
      tool_calls: calls.map(({ id: callId, ...each }) => ({ id: callId, type: 'function', function: each })),
    }),
  }
  return { id, text: content ?? '', reasoning: reasoning ?? '', calls, items: [item] }
}

type Block =
  | { readonly type: 'text'; text: string }
  | { readonly type: 'thinking'; thinking: string; signature: string }
  | { readonly type: 'tool_use'; readonly id: string; readonly name: string; input: Json }

interface BlockEvent {
  readonly type: string
  readonly message?: { readonly id: string }
  readonly index?: number
  readonly content_block?: Block
  readonly delta?: {
    readonly text?: string
    readonly thinking?: string
    readonly signature?: string
    readonly partial_json?: string
  }
}

/** A client of Anthropic's Messages. */
class MessagesClient implements ApiClient {
  readonly api = 'messages'
  readonly path = '/v1/messages'

  user(text: string, image?: string): Json[] {
    if (image === undefined) return [{ role: 'user', content: text }]
    const source = { type: 'base64', media_type: 'image/png', data: image }
    return [
      {
        role: 'user',
        content: [
          { type: 'text', text },
          { type: 'image', source },
        ],
      },
    ]
  }

  results(results: readonly ToolResult[]): Json[] {
    const content = results.map(({ id, text }) => ({ type: 'tool_result', tool_use_id: id, content: text }))
    return [{ role: 'user', content }]
  }

  body(conversation: readonly Json[], { stream, model = 'sim', system, tools, seed }: AskOptions): JsonObject {
    const { parameters, ...named } = lookUp
    return {
      model,
      max_tokens: 10_000,
      messages: conversation,
      ...(system !== undefined && { system }),
      ...(tools && { tools: [{ ...named, input_schema: parameters }] }),
      ...(seed !== undefined && { seed }),
      ...(stream && { stream: true }),
    }
  }

  received(reply: JsonObject): Received {
    return receivedBlocks(reply['id'] as string, reply['content'] as unknown as Block[])
  }

  receivedStream(events: readonly StreamEvent[]): Received {
    const blocks: Block[] = []
    const inputs: string[] = []
    let id = ''
    for (const { message, index = -1, content_block: begun, delta } of documentsOf(events) as unknown as BlockEvent[]) {
      if (message) id = message.id
      if (begun) blocks[index] = { ...begun }
      const block = blocks[index]
      if (!delta || !block) continue
      if (block.type === 'text') block.text += delta.text ?? ''
      else if (block.type === 'thinking') {
        block.thinking += delta.thinking ?? ''
        block.signature += delta.signature ?? ''
      } else inputs[index] = (inputs[index] ?? '') + (delta.partial_json ?? '')
    }
    for (const [index, block] of blocks.entries()) {
      if (block.type === 'tool_use') block.input = inputOf(inputs[index] ?? '{}')
    }
    return receivedBlocks(id, blocks)
  }
}

/** A model may write what is no JSON; how that is sent back is up to the client. */
function inputOf(written: string): Json {
  try {
    return JSON.parse(written) as Json
  } catch {
    return { INVALID_JSON: written }
  }
}

function receivedBlocks(id: string, blocks: readonly Block[]): Received {
  return {
    id,
    text: blocks.map((block) => (block.type === 'text' ? block.text : '')).join(''),
    reasoning: blocks.map((block) => (block.type === 'thinking' ? block.thinking : '')).join(''),
    calls: blocks.flatMap((block) =>
      block.type === 'tool_use' ? [{ id: block.id, name: block.name, arguments: JSON.stringify(block.input) }] : [],
    ),
    items: [{ role: 'assistant', content: blocks as unknown as Json[] }],
  }
}

interface ResponseDocument {
  readonly id: string
  readonly output: readonly (JsonObject & OutputItem)[]
}

type OutputItem =
  | { readonly type: 'reasoning'; readonly summary: readonly { readonly text: string }[] }
  | { readonly type: 'message'; readonly content: readonly { readonly text?: string }[] }
  | { readonly type: 'function_call'; readonly call_id: string; readonly name: string; readonly arguments: string }

/** A client of the Responses API that keeps its conversation itself. */
class ResponsesClient implements ApiClient {
  readonly api = 'responses'
  readonly path = '/v1/responses'

  user(text: string, image?: string): Json[] {
    if (image === undefined) return [{ role: 'user', content: text }]
    const url = `data:image/png;base64,${image}`
    return [
      {
        role: 'user',
        content: [
          { type: 'input_text', text },
          { type: 'input_image', image_url: url },
        ],
      },
    ]
  }

  results(results: readonly ToolResult[]): Json[] {
    return results.map(({ id, text }) => ({ type: 'function_call_output', call_id: id, output: text }))
  }

  body(conversation: readonly Json[], { stream, model = 'sim', system, tools, seed }: AskOptions): JsonObject {
    return {
      model,
      input: conversation,
      store: false,
      ...(system !== undefined && { instructions: system }),
      ...(tools && { tools: [{ type: 'function', ...lookUp, strict: false }] }),
      ...(seed !== undefined && { seed }),
      ...(stream && { stream: true }),
    }
  }

  received(reply: JsonObject): Received {
    const { id, output } = reply as unknown as ResponseDocument
    const of = <Type extends OutputItem['type']>(type: Type) =>
      output.filter((item): item is JsonObject & Extract<OutputItem, { type: Type }> => item.type === type)
    return {
      id,
      text: of('message')
        .flatMap(({ content }) => content.map(({ text = '' }) => text))
        .join(''),
      reasoning: of('reasoning')
        .flatMap(({ summary }) => summary.map(({ text }) => text))
        .join(''),
      calls: of('function_call').map((call) => ({ id: call.call_id, name: call.name, arguments: call.arguments })),
      items: output,
    }
  }

  receivedStream(events: readonly StreamEvent[]): Received {
    const last = documentsOf(events).at(-1)?.['response']
    if (typeof last !== 'object' || last === null || Array.isArray(last)) throw new Error('the stream has no response')
    return this.received(last as JsonObject)
  }
}

export const apiClients: Readonly<Record<ApiName, ApiClient>> = {
  chat: new ChatClient(),
  responses: new ResponsesClient(),
  messages: new MessagesClient(),
}

export const apiNames = ['chat', 'responses', 'messages'] as const
