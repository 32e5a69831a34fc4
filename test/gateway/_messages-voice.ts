import type { Json, JsonObject } from '../../src/schema/index.ts'
import { documentsOf, type StreamEvent } from './_stream-events.ts'
import { lookUp, type AskOptions, type Heard, type ToolResult, type Voice } from './_voice.ts'

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
export class MessagesVoice implements Voice {
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

  heard(reply: JsonObject): Heard {
    return heardBlocks(reply['id'] as string, reply['content'] as unknown as Block[])
  }

  heardStream(events: readonly StreamEvent[]): Heard {
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
    return heardBlocks(id, blocks)
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

function heardBlocks(id: string, blocks: readonly Block[]): Heard {
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
