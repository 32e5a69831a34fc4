import { hash32 } from '../../kit/index.ts'
import {
  apiPaths,
  type AssistantMessage,
  type ContentPart,
  isJsonObject,
  type Json,
  type JsonObject,
  type Message,
  type Sampling,
  textOf,
  type ToolDefinition,
} from '../../schema/index.ts'
import type { BackendReply, ModelRequest, ToolChoice } from '../backend.ts'
import {
  type AnswerContext,
  bodyField,
  type Dialect,
  type DialectOptions,
  fieldsJson,
  unsupportedPart,
  jsonCache,
  samplingTail,
  signedReply,
  type StreamAssembler,
  type RequestTarget,
} from '../client-side.ts'
import { readResponse } from './read-reply.ts'
import { ResponsesStream } from './read-stream.ts'

/**
 * OpenAI's Responses API, without its memory: the whole conversation is sent every time (`store: false`), as in Chat. The
 * API knows neither `stop` nor `seed`, so these are not sent, and it returns no token ids; fields that a server knows beyond
 * it can be given in `sampling.extra`. Earlier reasoning is sent as it came if it is encrypted, and else as a summary, but
 * not to OpenAI, which accepts only its own.
 */
export class ResponsesDialect implements Dialect {
  readonly path = apiPaths.responses
  readonly hasTokens = false
  readonly #options: DialectOptions
  readonly #target: RequestTarget
  readonly #head: string
  readonly #sendReasoning: boolean
  readonly #items = jsonCache((message: Message) => this.#itemsJson(message))
  readonly #tools = jsonCache(toolsJson)

  constructor(options: DialectOptions) {
    this.#options = options
    this.#target = { api: 'Responses', source: options.source }
    this.#sendReasoning = options.sendReasoning && !options.isOpenAi
    this.#head = `{"model":${JSON.stringify(options.upstreamName)},"input":[`
  }

  render(request: ModelRequest): string {
    return this.#renderOwn(request) ?? `${this.#prompt(request)}${this.#tail(request)}}`
  }

  /** The body for counting tokens, for which OpenAI knows fewer fields. */
  renderCounted(request: ModelRequest): string {
    return this.#renderOwn(request) ?? `${this.#prompt(request)}${fieldsJson(effortIn(request.sampling))}}`
  }

  /** The body with the client's own fields, and its own items after what is filled in. */
  #renderOwn({ own }: ModelRequest): string | undefined {
    return own && `${this.#input(own.messages, own.items)}${fieldsJson(own.fields)}}`
  }

  #input(messages: readonly Message[], items: readonly Json[] = []): string {
    const texts = messages.map((message) => this.#items(message)).filter((json) => json !== '')
    return `${this.#head}${[...texts, ...items.map((item) => JSON.stringify(item))].join(',')}]`
  }

  #prompt(request: ModelRequest): string {
    const { tools, toolChoice, parallelToolCalls, responseFormat } = request
    const { extra } = request.sampling
    let body = this.#input(request.messages)
    if (tools.length > 0) {
      body += this.#tools(tools)
      if (toolChoice !== undefined) body += bodyField('tool_choice', toolChoiceJson(toolChoice), extra)
      if (parallelToolCalls !== undefined) body += bodyField('parallel_tool_calls', String(parallelToolCalls), extra)
    }
    const verbosity = extra?.['verbosity']
    if (responseFormat || verbosity !== undefined) {
      const { kind: type, ...schema } = responseFormat ?? {}
      body += bodyField('text', JSON.stringify({ format: responseFormat && { type, ...schema }, verbosity }), extra)
    }
    return body
  }

  parse(body: unknown, context: AnswerContext): BackendReply {
    return readResponse(body, this.#options.source, context)
  }

  assemble(context: AnswerContext): StreamAssembler {
    return new ResponsesStream(this.#options.source, context)
  }

  #itemsJson(message: Message): string {
    const items = this.#signed(message) ?? inputItems(message, this.#sendReasoning, this.#target)
    return items.map((item) => JSON.stringify(item)).join(',')
  }

  #signed(message: Message): readonly Json[] | undefined {
    const { sendReasoning, modelName } = this.#options
    const reply = sendReasoning ? signedReply(message, modelName) : undefined
    return reply?.api === 'responses' ? reply.output : undefined
  }

  #tail({ sampling, stream = this.#options.stream }: ModelRequest): string {
    const { temperature, topP, maxTokens } = sampling
    // `verbosity` is a top-level field in Chat; here it belongs to `text`.
    const { verbosity: _said, ...extra } = sampling.extra ?? {}
    const asked = {
      temperature,
      top_p: topP,
      max_output_tokens: maxTokens,
      ...effortIn(sampling),
      ...(stream && { stream: true }),
    }
    return samplingTail(asked, extra, reservedFields, { store: false })
  }
}

function toolsJson(tools: readonly ToolDefinition[]): string {
  // Tools are not strict unless they say so, as in Chat: this API would otherwise rewrite their schemas.
  const flat = tools.map((tool) => ({ type: 'function', ...tool.function, strict: tool.function.strict ?? false }))
  return `,"tools":${JSON.stringify(flat)}`
}

/** Fields that `extra` must not set: some would show the model more than is recorded. */
const reservedFields = [
  'model',
  'input',
  'tools',
  'stream',
  'background',
  'store',
  'previous_response_id',
  'conversation',
  'instructions',
  'prompt',
]

function effortIn({ reasoningEffort: effort }: Sampling): JsonObject {
  return effort === undefined ? {} : { reasoning: { effort } }
}

function toolChoiceJson(choice: ToolChoice): string {
  return JSON.stringify(typeof choice === 'string' ? choice : { type: 'function', name: choice.name })
}

function inputItems(message: Message, sendReasoning: boolean, target: RequestTarget): Json[] {
  if (message.role === 'assistant') return assistantItems(message, sendReasoning)
  const item = ownItem(message.content)
  if (item !== undefined) return [item]
  const content = inputContent(message.content, target)
  if (message.role === 'tool') return [{ type: 'function_call_output', call_id: message.tool_call_id, output: content }]
  return [{ role: message.role, content }]
}

/** An item of this API is kept as a message with one part; parts of its messages have `input_` types. */
function ownItem(content: string | readonly ContentPart[]): Json | undefined {
  if (typeof content === 'string' || content.length !== 1) return undefined
  const [part] = content
  if (part?.type !== 'other' || part.api !== 'responses' || !isJsonObject(part.value)) return undefined
  const { type } = part.value
  return typeof type === 'string' && !type.startsWith('input_') ? part.value : undefined
}

function assistantItems(message: AssistantMessage, sendReasoning: boolean): Json[] {
  const items: Json[] = []
  if (sendReasoning && message.reasoning_content !== undefined) {
    items.push({
      type: 'reasoning',
      // Servers insist on an id, though with `store: false` they look nothing up by it. Equal text gives equal bytes.
      id: `rs_${hash32(message.reasoning_content).toString(16)}`,
      summary: [{ type: 'summary_text', text: message.reasoning_content }],
    })
  }
  for (const { api, value } of message.others ?? []) if (api === 'responses') items.push(value)
  const text = textOf(message) || message.refusal
  if (text !== undefined && text !== '') items.push({ role: 'assistant', content: text })
  for (const call of message.tool_calls ?? []) {
    items.push({
      type: 'function_call',
      call_id: call.id,
      name: call.function.name,
      arguments: call.function.arguments,
    })
  }
  return items
}

function inputContent(content: string | readonly ContentPart[], target: RequestTarget): Json {
  if (typeof content === 'string') return content
  return content.map((part): Json => {
    if (part.type === 'text') return { type: 'input_text', text: part.text }
    if (part.type === 'image_url') {
      return { type: 'input_image', image_url: part.image_url.url, detail: part.image_url.detail ?? 'auto' }
    }
    if (part.api !== 'responses') throw unsupportedPart(target, part)
    return part.value
  })
}
