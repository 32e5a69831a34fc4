import {
  apiPaths,
  type AssistantMessage,
  isJsonObject,
  type Json,
  type JsonObject,
  type Message,
  type Sampling,
  type ToolDefinition,
} from '../../schema/index.ts'
import type { BackendReply, ModelRequest, ResponseFormat, ToolChoice } from '../backend.ts'
import {
  type AnswerContext,
  bodyField,
  type Dialect,
  type DialectOptions,
  unsupportedPart,
  jsonCache,
  messageJson,
  samplingTail,
  signedReply,
  signaturesIn,
  type StreamAssembler,
  type TokenRequest,
  tokenRequestOf,
  type RequestTarget,
} from '../client-side.ts'
import { ReplyDraft } from '../reply-draft.ts'
import type { TokenArrays } from '../tokens/token-scanner.ts'
import { chatMessage, readChatReply, thoughtfulContent, withSignatures } from './read-reply.ts'
import { ChatStream } from './read-stream.ts'

/**
 * OpenAI's Chat Completions, as vLLM, SGLang and most others serve it. Messages already have its shape, so a body is put
 * together from JSON that was written once per message and per tool list: turn n writes only what is new.
 *
 * `maxTokens` goes out as `max_tokens`, which every imitator takes, and as `max_completion_tokens` to OpenAI itself, whose
 * newer models refuse the former. Elsewhere the latter can be given in `sampling.extra`.
 */
export class ChatDialect implements Dialect {
  readonly path = apiPaths.chat
  readonly hasTokens = true
  readonly #options: DialectOptions
  readonly #target: RequestTarget
  readonly #tokenRequest: TokenRequest
  readonly #head: string
  readonly #tools = jsonCache((tools: readonly ToolDefinition[]) => `,"tools":${JSON.stringify(tools)}`)
  readonly #rewritten = jsonCache((message: Message) => JSON.stringify(this.#rewrite(message)))

  constructor(options: DialectOptions) {
    this.#options = options
    this.#target = { api: 'Chat Completions', source: options.source }
    this.#tokenRequest = tokenRequestOf([options.engine])
    this.#head = `{"model":${JSON.stringify(options.upstreamName)},"messages":[`
  }

  render(request: ModelRequest): string {
    const { messages, tools, toolChoice, parallelToolCalls, responseFormat } = request
    const { extra } = request.sampling
    let body = this.#head
    for (const [index, message] of messages.entries()) body += (index > 0 ? ',' : '') + this.#message(message)
    body += ']'
    if (tools.length > 0) {
      body += this.#tools(tools)
      if (toolChoice !== undefined) body += bodyField('tool_choice', toolChoiceJson(toolChoice), extra)
      if (parallelToolCalls !== undefined) body += bodyField('parallel_tool_calls', String(parallelToolCalls), extra)
    }
    if (responseFormat) body += bodyField('response_format', responseFormatJson(responseFormat), extra)
    return `${body}${this.#tail(request)}}`
  }

  /** The body for `/tokenize` of vLLM and SGLang, which apply the chat template. Settings of the template may be in `extra`. */
  renderCounted(request: ModelRequest): string {
    const { reasoningEffort, extra } = request.sampling
    const given = extra?.['chat_template_kwargs']
    // For a reply vLLM itself passes the effort to the template. `/tokenize` has no field for it, so it goes with the
    // kwargs.
    const kwargs = { ...(isJsonObject(given) && given), reasoning_effort: reasoningEffort }
    // Counted as for a new reply, unless the reply is to continue the last message: then `extra` says so.
    const asked = { add_generation_prompt: true, ...extra }
    const sampling: Sampling =
      reasoningEffort === undefined
        ? { extra: asked }
        : { reasoningEffort, extra: { ...asked, chat_template_kwargs: kwargs } }
    return this.render({ ...request, sampling, stream: false, captureTokens: false })
  }

  parse(body: unknown, context: AnswerContext, tokens?: TokenArrays): BackendReply {
    return readChatReply(body, new ReplyDraft(this.#options.source, context), tokens)
  }

  assemble(context: AnswerContext, wantsTokens: boolean): StreamAssembler {
    return new ChatStream(new ReplyDraft(this.#options.source, context), wantsTokens, context.choices)
  }

  #message(message: Message): string {
    const isPlain = message.role === 'assistant' ? this.#isPlain(message) : !mustBeRewritten(message)
    return isPlain ? messageJson(message) : this.#rewritten(message)
  }

  #isPlain(message: AssistantMessage): boolean {
    return !this.#movesReasoning(message) && !message.others && !signedReply(message, this.#options.modelName)
  }

  #movesReasoning({ reasoning_content: reasoning }: AssistantMessage): boolean {
    const { sendReasoning, isMistral = false } = this.#options
    return (!sendReasoning || isMistral) && reasoning !== undefined
  }

  #rewrite(message: Message): JsonObject {
    if (message.role !== 'assistant') return givenMessageJson(message, this.#target)
    const signed = signedReply(message, this.#options.modelName)
    const sent = this.#movesReasoning(message) ? this.#withoutReasoning(message) : chatMessage(message)
    const [own] = signed?.api === 'chat' ? signed.output : []
    return own ? withSignatures(sent, signaturesIn(own)) : sent
  }

  #withoutReasoning(message: AssistantMessage): JsonObject {
    const { reasoning_content: reasoning = '', ...rest } = message
    const sent = chatMessage(rest)
    return this.#options.sendReasoning ? { ...sent, content: thoughtfulContent(reasoning, rest.content) } : sent
  }

  #tail({ sampling, captureTokens, stream: wantsStream = this.#options.stream }: ModelRequest): string {
    // Recorded tokens matter more than streaming: without tokens in streams, the reply is not streamed.
    const stream = wantsStream && (!captureTokens || this.#tokenRequest.inStreams)
    const { isOpenAi } = this.#options
    const { temperature, topP, maxTokens, stop, seed, reasoningEffort, extra } = sampling
    const asked = {
      temperature,
      top_p: topP,
      [isOpenAi ? 'max_completion_tokens' : 'max_tokens']: maxTokens,
      stop,
      seed,
      reasoning_effort: reasoningEffort,
    }
    const fixed = {
      // The fields that ask for tokens; OpenAI has no token ids to give.
      ...(captureTokens && this.#tokenRequest.fields),
      ...(stream && { stream: true, stream_options: { include_usage: true } }),
    }
    return samplingTail(asked, extra, ['model', 'messages', 'tools', 'stream', 'n'], fixed)
  }
}

function responseFormatJson({ kind, ...schema }: ResponseFormat): string {
  return JSON.stringify(kind === 'json_object' ? { type: kind } : { type: kind, json_schema: schema })
}

function toolChoiceJson(choice: ToolChoice): string {
  return JSON.stringify(typeof choice === 'string' ? choice : { type: 'function', function: { name: choice.name } })
}

type GivenMessage = Exclude<Message, AssistantMessage>

/** Whether the message must be rewritten before it is sent. A message that was never checked may lack its content. */
function mustBeRewritten(message: GivenMessage): boolean {
  if (message.role === 'tool' && message.is_error !== undefined) return true
  const { content } = message
  return Array.isArray(content) && content.some((part) => part.type === 'other')
}

/** The message in the words of Chat, including the parts that only Chat knows. Chat has no field for a failed tool call. */
function givenMessageJson(message: GivenMessage & { readonly is_error?: boolean }, target: RequestTarget): JsonObject {
  const { content, is_error: _mark, ...head } = message
  if (typeof content === 'string') return { ...head, content }
  const parts: Json[] = []
  for (const part of content) {
    if (part.type === 'other' && part.api !== 'chat') throw unsupportedPart(target, part)
    parts.push(part.type === 'other' ? part.value : { ...part })
  }
  return { ...head, content: parts }
}
