import {
  apiPaths,
  isJsonObject,
  type AssistantMessage,
  type JsonObject,
  type Message,
  type Sampling,
  type ToolDefinition,
} from '../../schema/index.ts'
import type { BackendReply, ModelRequest, ResponseFormat, ToolChoice } from '../backend.ts'
import { chatMessage, sealsIn, withSeals } from './_chat-extras.ts'
import { chatGiven, mustBeRewritten, type GivenMessage } from './_chat-given.ts'
import { ChatStream } from './_chat-stream.ts'
import { readChatReply } from './_chat-reply.ts'
import { bodyField, samplingTail } from './_sampling-tail.ts'
import type { Wording } from './_unsayable.ts'
import type { AnswerContext, Dialect, DialectOptions, StreamAssembler } from './dialect.ts'
import { messageJson } from './message-json.ts'
import { ReplyDraft } from './_reply-draft.ts'
import { sealedReply } from './sealed-reply.ts'
import { thoughtfulContent } from './thinking-part.ts'
import { tokenRequestOf, type TokenRequest } from '../tokens/token-request.ts'
import type { TokenArrays } from '../tokens/token-scanner.ts'

/**
 * OpenAI's Chat Completions, as vLLM, SGLang and most others serve it. Messages already have its shape, so a body is put
 * together from JSON that was written once per message, per tool list and per sampling: turn n writes only what is new.
 *
 * `maxTokens` goes out as `max_tokens`, which every imitator takes, and as `max_completion_tokens` to OpenAI itself, whose
 * newer models refuse the former. Elsewhere the latter can be given in `sampling.extra`.
 */
export class ChatDialect implements Dialect {
  readonly path = apiPaths.chat
  readonly hasTokens = true
  readonly #options: DialectOptions
  readonly #wording: Wording
  readonly #tokenRequest: TokenRequest
  readonly #head: string
  readonly #toolsJson = new WeakMap<readonly ToolDefinition[], string>()
  /** The tails written for a sampling: four at most, by `tailIndex`. */
  readonly #tails = new WeakMap<Sampling, (string | undefined)[]>()
  /** The JSON of messages that are rewritten before they are sent. */
  readonly #rewritten = new WeakMap<Message, string>()

  constructor(options: DialectOptions) {
    this.#options = options
    this.#wording = { api: 'Chat Completions', source: options.source }
    this.#tokenRequest = tokenRequestOf([options.engine])
    this.#head = `{"model":${JSON.stringify(options.upstreamName)},"messages":[`
  }

  render(request: ModelRequest): string {
    const { messages, tools, toolChoice, parallelToolCalls, responseFormat } = request
    const { extra } = request.sampling
    let body = this.#head
    for (let index = 0; index < messages.length; index += 1) {
      if (index > 0) body += ','
      body += this.#message(messages[index] as Message)
    }
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
    if (message.role !== 'assistant') return mustBeRewritten(message) ? this.#given(message) : messageJson(message)
    const { modelName, sendReasoning, isMistral = false } = this.#options
    const movesReasoning = (!sendReasoning || isMistral) && message.reasoning_content !== undefined
    const sealed = sealedReply(message, modelName)
    if (!movesReasoning && !message.others && !sealed) return messageJson(message)
    let json = this.#rewritten.get(message)
    if (json === undefined) {
      const sent = movesReasoning ? this.#withoutReasoning(message) : chatMessage(message)
      const [own] = sealed?.api === 'chat' ? sealed.output : []
      json = JSON.stringify(own ? withSeals(sent, sealsIn(own)) : sent)
      this.#rewritten.set(message, json)
    }
    return json
  }

  /** The message with its reasoning inside the content (or left out), not in a field beside it. */
  #withoutReasoning(message: AssistantMessage): JsonObject {
    const { reasoning_content: reasoning = '', ...said } = message
    const sent = chatMessage(said)
    return this.#options.sendReasoning ? { ...sent, content: thoughtfulContent(reasoning, said.content) } : sent
  }

  #given(message: GivenMessage): string {
    let json = this.#rewritten.get(message)
    if (json === undefined) {
      json = JSON.stringify(chatGiven(message, this.#wording))
      this.#rewritten.set(message, json)
    }
    return json
  }

  #tools(tools: readonly ToolDefinition[]): string {
    let json = this.#toolsJson.get(tools)
    if (json === undefined) {
      json = `,"tools":${JSON.stringify(tools)}`
      this.#toolsJson.set(tools, json)
    }
    return json
  }

  #tail({ sampling, captureTokens, stream: wantsStream = this.#options.stream }: ModelRequest): string {
    // Recorded tokens matter more than streaming: without tokens in streams, the reply is not streamed.
    const stream = wantsStream && (!captureTokens || this.#tokenRequest.inStreams)
    let tails = this.#tails.get(sampling)
    if (!tails) {
      tails = []
      this.#tails.set(sampling, tails)
    }
    return (tails[tailIndex(captureTokens, stream)] ??= this.#writeTail(sampling, captureTokens, stream))
  }

  #writeTail(sampling: Sampling, captureTokens: boolean, stream: boolean): string {
    const { isOpenAi } = this.#options
    const { temperature, topP, maxTokens, stop, seed, reasoningEffort, extra } = sampling
    return samplingTail({
      asked: {
        temperature,
        top_p: topP,
        [isOpenAi ? 'max_completion_tokens' : 'max_tokens']: maxTokens,
        stop,
        seed,
        reasoning_effort: reasoningEffort,
      },
      extra,
      fixed: {
        // The fields that ask for tokens; OpenAI has no token ids to give.
        ...(captureTokens && this.#tokenRequest.fields),
        ...(stream && { stream: true, stream_options: { include_usage: true } }),
      },
      reserved: ['model', 'messages', 'tools', 'stream', 'n'],
    })
  }
}

function tailIndex(captureTokens: boolean, stream: boolean): number {
  return (captureTokens ? 1 : 0) + (stream ? 2 : 0)
}

function responseFormatJson({ kind, ...schema }: ResponseFormat): string {
  return JSON.stringify(kind === 'json_object' ? { type: kind } : { type: kind, json_schema: schema })
}

function toolChoiceJson(choice: ToolChoice): string {
  return JSON.stringify(typeof choice === 'string' ? choice : { type: 'function', function: { name: choice.name } })
}
