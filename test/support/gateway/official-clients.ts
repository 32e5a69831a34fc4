import type Anthropic from '@anthropic-ai/sdk'
import type OpenAI from 'openai'
import type { ApiName } from '../../../src/schema/index.ts'
import { modelName } from './gateway-over-simulator.ts'
import { question } from './calculator-tools.ts'

/** What is the same for the three APIs of the two official clients. */
export interface Asked {
  readonly model?: string
  readonly signal?: AbortSignal
  readonly text?: string
}

export interface Clients {
  readonly openai: OpenAI
  readonly anthropic: Anthropic
}

interface AnyClient {
  /** The text of a whole reply. */
  readonly whole: (clients: Clients, asked?: Asked) => Promise<string>
  /** The pieces of text of a streamed one, as they come. */
  readonly stream: (clients: Clients, asked?: Asked) => AsyncGenerator<string, void, void>
}

const max_tokens = 1000

export const anyClient: Readonly<Record<ApiName, AnyClient>> = {
  chat: {
    async whole({ openai }, { model = modelName, signal, text: content = question } = {}) {
      const messages = [{ role: 'user' as const, content }]
      const { choices } = await openai.chat.completions.create({ model, messages }, { signal })
      return choices[0]?.message.content ?? ''
    },
    async *stream({ openai }, { model = modelName, signal, text: content = question } = {}) {
      const messages = [{ role: 'user' as const, content }]
      const asked = { model, messages, stream: true as const }
      for await (const { choices } of await openai.chat.completions.create(asked, { signal })) {
        yield choices[0]?.delta.content ?? ''
      }
    },
  },
  responses: {
    async whole({ openai }, { model = modelName, signal, text: input = question } = {}) {
      const { output_text } = await openai.responses.create({ model, input }, { signal })
      return output_text
    },
    async *stream({ openai }, { model = modelName, signal, text: input = question } = {}) {
      for await (const event of await openai.responses.create({ model, input, stream: true }, { signal })) {
        yield event.type === 'response.output_text.delta' ? event.delta : ''
      }
    },
  },
  messages: {
    async whole({ anthropic }, { model = modelName, signal, text: content = question } = {}) {
      const messages = [{ role: 'user' as const, content }]
      const message = await anthropic.messages.create({ model, max_tokens, messages }, { signal })
      return message.content.map((block) => (block.type === 'text' ? block.text : '')).join('')
    },
    async *stream({ anthropic }, { model = modelName, signal, text: content = question } = {}) {
      const messages = [{ role: 'user' as const, content }]
      const asked = { model, max_tokens, messages, stream: true as const }
      for await (const event of await anthropic.messages.create(asked, { signal })) {
        yield event.type === 'content_block_delta' && event.delta.type === 'text_delta' ? event.delta.text : ''
      }
    },
  },
}

/** All of a stream. */
export async function joined(stream: AsyncIterable<string>): Promise<string> {
  let text = ''
  for await (const piece of stream) text += piece
  return text
}
