import type { Json, JsonObject } from '../../src/schema/index.ts'
import { documentsOf, type StreamEvent } from './_stream-events.ts'
import { lookUp, type AskOptions, type Heard, type ToolResult, type Voice } from './_voice.ts'

interface ResponseDocument {
  readonly id: string
  readonly output: readonly (JsonObject & OutputItem)[]
}

type OutputItem =
  | { readonly type: 'reasoning'; readonly summary: readonly { readonly text: string }[] }
  | { readonly type: 'message'; readonly content: readonly { readonly text?: string }[] }
  | { readonly type: 'function_call'; readonly call_id: string; readonly name: string; readonly arguments: string }

/** A client of the Responses API that keeps its conversation itself. */
export class ResponsesVoice implements Voice {
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

  heard(reply: JsonObject): Heard {
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

  heardStream(events: readonly StreamEvent[]): Heard {
    const last = documentsOf(events).at(-1)?.['response']
    if (typeof last !== 'object' || last === null || Array.isArray(last)) throw new Error('the stream has no response')
    return this.heard(last as JsonObject)
  }
}
