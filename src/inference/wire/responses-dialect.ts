import {
  apiPaths,
  type Json,
  type JsonObject,
  type Message,
  type Sampling,
  type ToolDefinition,
} from '../../schema/index.ts'
import type { BackendReply, ModelRequest, ResponseFormat, ToolChoice } from '../backend.ts'
import { inputItems } from './_responses-input.ts'
import { readResponse } from './_responses-reply.ts'
import { ResponsesStream } from './_responses-stream.ts'
import { bodyField, fieldsJson, samplingTail } from './_sampling-tail.ts'
import { sealedReply } from './sealed-reply.ts'
import type { Wording } from './_unsayable.ts'
import type { AnswerContext, Dialect, DialectOptions, StreamAssembler } from './dialect.ts'

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
  readonly #wording: Wording
  readonly #head: string
  readonly #sendReasoning: boolean
  readonly #itemsJson = new WeakMap<Message, string>()
  readonly #toolsJson = new WeakMap<readonly ToolDefinition[], string>()
  readonly #wholeTails = new WeakMap<Sampling, string>()
  readonly #streamTails = new WeakMap<Sampling, string>()

  constructor(options: DialectOptions) {
    this.#options = options
    this.#wording = { api: 'Responses', source: options.source }
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
    const said = messages.map((message) => this.#items(message)).filter((json) => json !== '')
    return `${this.#head}${[...said, ...items.map((item) => JSON.stringify(item))].join(',')}]`
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
      body += bodyField(
        'text',
        JSON.stringify({ format: responseFormat && formatOf(responseFormat), verbosity }),
        extra,
      )
    }
    return body
  }

  parse(body: unknown, context: AnswerContext): BackendReply {
    return readResponse(body, this.#options.source, context)
  }

  assemble(context: AnswerContext): StreamAssembler {
    return new ResponsesStream(this.#options.source, context)
  }

  #items(message: Message): string {
    let json = this.#itemsJson.get(message)
    if (json === undefined) {
      json = (this.#sealed(message) ?? inputItems(message, this.#sendReasoning, this.#wording))
        .map((item) => JSON.stringify(item))
        .join(',')
      this.#itemsJson.set(message, json)
    }
    return json
  }

  #sealed(message: Message): readonly Json[] | undefined {
    const { sendReasoning, modelName } = this.#options
    const reply = sendReasoning ? sealedReply(message, modelName) : undefined
    return reply?.api === 'responses' ? reply.output : undefined
  }

  #tools(tools: readonly ToolDefinition[]): string {
    let json = this.#toolsJson.get(tools)
    if (json === undefined) {
      // Tools are not strict unless they say so, as in Chat: this API would otherwise rewrite their schemas.
      const flat = tools.map((tool) => ({ type: 'function', ...tool.function, strict: tool.function.strict ?? false }))
      json = `,"tools":${JSON.stringify(flat)}`
      this.#toolsJson.set(tools, json)
    }
    return json
  }

  #tail({ sampling, stream = this.#options.stream }: ModelRequest): string {
    const tails = stream ? this.#streamTails : this.#wholeTails
    let tail = tails.get(sampling)
    if (tail === undefined) {
      const { temperature, topP, maxTokens } = sampling
      // `verbosity` is a top-level field in Chat; here it belongs to `text`.
      const { verbosity: _said, ...extra } = sampling.extra ?? {}
      tail = samplingTail({
        asked: {
          temperature,
          top_p: topP,
          max_output_tokens: maxTokens,
          ...effortIn(sampling),
          ...(stream && { stream: true }),
        },
        extra,
        fixed: { store: false },
        reserved: reservedFields,
      })
      tails.set(sampling, tail)
    }
    return tail
  }
}

/**
 * Fields that `extra` must not set. Other instructions, or a conversation that the server holds, would show the model more
 * than is recorded.
 */
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

function formatOf({ kind, ...schema }: ResponseFormat): object {
  return { type: kind, ...schema }
}

function toolChoiceJson(choice: ToolChoice): string {
  return JSON.stringify(typeof choice === 'string' ? choice : { type: 'function', name: choice.name })
}
