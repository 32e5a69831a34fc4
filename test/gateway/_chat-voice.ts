import type { Json, JsonObject } from '../../src/schema/index.ts'
import { documentsOf, type StreamEvent } from './_stream-events.ts'
import { lookUp, type AskOptions, type Heard, type HeardCall, type ToolResult, type Voice } from './_voice.ts'

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
export class ChatVoice implements Voice {
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

  heard(reply: JsonObject): Heard {
    const { id, choices } = reply as unknown as ChatDocument
    return heardMessage(id, choices?.[0]?.message ?? {})
  }

  heardStream(events: readonly StreamEvent[]): Heard {
    const chunks = documentsOf(events) as unknown as ChatDocument[]
    const message: ChatMessage & { content: string; reasoning_content: string } = { content: '', reasoning_content: '' }
    const calls: HeardCall[] = []
    for (const delta of chunks.flatMap(({ choices }) => choices?.[0]?.delta ?? [])) {
      message.content += delta.content ?? ''
      message.reasoning_content += delta.reasoning_content ?? ''
      for (const { index = 0, id, function: called } of delta.tool_calls ?? []) {
        const { arguments: before = '', ...begun } = calls[index] ?? { id: id ?? '', name: called?.name ?? '' }
        calls[index] = { ...begun, arguments: before + (called?.arguments ?? '') }
      }
    }
    message.tool_calls = calls.map(({ id, ...called }) => ({ id, function: called }))
    return heardMessage(chunks[0]?.id ?? '', message)
  }
}

function heardMessage(id: string, message: ChatMessage): Heard {
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
