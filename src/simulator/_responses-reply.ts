import { tokensOf, versionOf, type Delivery } from './_answer.ts'
import type { Dialect, StreamEvent, WireRequest } from './_dialect.ts'
import { readResponsesRequest } from './_responses-request.ts'
import { groupTokens } from './_token-groups.ts'

type Item = Readonly<Record<string, unknown>>

/** OpenAI's Responses API, without anything that is kept on the server. */
export const responsesDialect: Dialect = {
  read: readResponsesRequest,

  whole(wire, delivery) {
    return JSON.stringify(responseOf(wire, delivery, outputOf(delivery)))
  },

  events(wire, delivery, groupSize) {
    const stream = new ResponseStream(wire, delivery)
    stream.begin()
    const tokens = tokensOf(delivery)
    for (const { part, call, text, to } of groupTokens(tokens, groupSize)) {
      if (part === 'content') stream.text(text, to)
      else if (part === 'reasoning') stream.reasoning(text, to)
      else if (part === 'name') stream.call(call, to)
      else if (part === 'arguments') stream.callArguments(call, text, to)
    }
    return stream.end(tokens.length)
  },
}

/** Writes the events of one stream, which number themselves and open and close the items they belong to. */
class ResponseStream {
  readonly #events: StreamEvent[] = []
  readonly #wire: WireRequest
  readonly #delivery: Delivery
  /** The finished items: a stream opens and closes them in this order. */
  readonly #output: readonly Item[]
  #index = -1
  #open: 'message' | 'reasoning' | 'call' | undefined
  #call = -1

  constructor(wire: WireRequest, delivery: Delivery) {
    this.#wire = wire
    this.#delivery = delivery
    this.#output = outputOf(delivery)
  }

  begin(): void {
    const response = { ...responseOf(this.#wire, this.#delivery, []), status: 'in_progress', usage: null }
    this.#push('response.created', { response }, 1)
    this.#push('response.in_progress', { response }, 1)
  }

  reasoning(delta: string, tokens: number): void {
    if (this.#open !== 'reasoning') this.#openItem('reasoning', { summary: [], content: [] }, tokens)
    this.#push('response.reasoning_text.delta', { ...this.#place(), content_index: 0, delta }, tokens)
  }

  text(delta: string, tokens: number): void {
    if (this.#open !== 'message') {
      this.#openItem('message', { status: 'in_progress', content: [] }, tokens)
      const part = { type: 'output_text', text: '', annotations: [] }
      this.#push('response.content_part.added', { ...this.#place(), content_index: 0, part }, tokens)
    }
    this.#push('response.output_text.delta', { ...this.#place(), content_index: 0, delta, logprobs: [] }, tokens)
  }

  call(call: number, tokens: number): void {
    // A name that the token limit cut off belongs to no call.
    if (!this.#delivery.reply.message.tool_calls?.[call]) return
    this.#closeItem(tokens)
    this.#call = call
    this.#openItem('call', { status: 'in_progress', arguments: '' }, tokens)
  }

  callArguments(call: number, delta: string, tokens: number): void {
    if (call === this.#call) this.#push('response.function_call_arguments.delta', { ...this.#place(), delta }, tokens)
  }

  end(tokens: number): StreamEvent[] {
    this.#closeItem(tokens)
    const response = responseOf(this.#wire, this.#delivery, this.#output)
    this.#push(`response.${String(response['status'])}`, { response }, tokens, true)
    return this.#events
  }

  #openItem(kind: 'message' | 'reasoning' | 'call', started: Item, tokens: number): void {
    this.#closeItem(tokens)
    this.#index += 1
    this.#open = kind
    const item = { ...this.#output[this.#index], ...started }
    this.#push('response.output_item.added', { output_index: this.#index, item }, tokens)
  }

  #closeItem(tokens: number): void {
    if (this.#open === undefined) return
    const { message } = this.#delivery.reply
    const place = this.#place()
    if (this.#open === 'message') {
      const text = message.content ?? ''
      const part = { type: 'output_text', text, annotations: [] }
      this.#push('response.output_text.done', { ...place, content_index: 0, text, logprobs: [] }, tokens)
      this.#push('response.content_part.done', { ...place, content_index: 0, part }, tokens)
    } else if (this.#open === 'reasoning') {
      const text = message.reasoning_content ?? ''
      this.#push('response.reasoning_text.done', { ...place, content_index: 0, text }, tokens)
    } else {
      const call = message.tool_calls?.[this.#call]?.function
      this.#push('response.function_call_arguments.done', { ...place, ...call }, tokens)
    }
    this.#open = undefined
    const item = this.#output[this.#index]
    this.#push('response.output_item.done', { output_index: this.#index, item }, tokens)
  }

  #place(): Item {
    return { output_index: this.#index, item_id: this.#output[this.#index]?.['id'] }
  }

  #push(type: string, fields: Item, tokens: number, isEnd = false): void {
    const data = JSON.stringify({ type, sequence_number: this.#events.length, ...fields })
    this.#events.push({ text: `event: ${type}\ndata: ${data}\n\n`, tokens, isEnd })
  }
}

function outputOf(delivery: Delivery): Item[] {
  const { message, finishReason } = delivery.reply
  const status = finishReason === 'length' ? 'incomplete' : 'completed'
  const output: Item[] = []
  if (message.reasoning_content !== undefined) {
    const content = [{ type: 'reasoning_text', text: message.reasoning_content }]
    output.push({ id: `rs_${delivery.id}`, type: 'reasoning', summary: [], content })
  }
  if (message.content !== null && message.content !== '') {
    const content = [{ type: 'output_text', text: message.content, annotations: [] }]
    output.push({ id: `msg_${delivery.id}`, type: 'message', role: 'assistant', status, content })
  }
  for (const call of message.tool_calls ?? []) {
    const { name, arguments: written } = call.function
    output.push({ id: `fc_${call.id}`, type: 'function_call', call_id: call.id, name, arguments: written, status })
  }
  return output
}

function responseOf(wire: WireRequest, delivery: Delivery, output: readonly Item[]): Record<string, unknown> {
  const { finishReason, usage } = delivery.reply
  const { tools, toolChoice = 'auto' } = wire.request
  const isCut = finishReason === 'length'
  return {
    id: `resp_${delivery.id}`,
    object: 'response',
    created_at: Math.floor(Date.now() / 1000),
    status: isCut ? 'incomplete' : 'completed',
    error: null,
    incomplete_details: isCut ? { reason: 'max_output_tokens' } : null,
    model: wire.model,
    ...versionOf(delivery),
    output,
    parallel_tool_calls: true,
    tool_choice: typeof toolChoice === 'object' ? { type: 'function', ...toolChoice } : toolChoice,
    tools: tools.map((tool) => Object.assign({ type: 'function', strict: null }, tool.function)),
    usage: {
      input_tokens: usage.input,
      input_tokens_details: { cached_tokens: usage.cachedInput },
      output_tokens: usage.output,
      output_tokens_details: { reasoning_tokens: usage.reasoning },
      total_tokens: usage.input + usage.output,
    },
  }
}
