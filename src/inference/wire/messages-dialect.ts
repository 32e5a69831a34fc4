import { apiPaths, type JsonObject, type Message, type Sampling, type ToolDefinition } from '../../schema/index.ts'
import type { BackendReply, ModelRequest, ResponseFormat, ToolChoice } from '../backend.ts'
import type { AnswerContext, Dialect, DialectOptions, StreamAssembler } from './dialect.ts'
import { readMessagesReply } from './_messages-reply.ts'
import { blocksJson, ownBlocks, placeOf } from './_messages-request.ts'
import { MessagesStream } from './_messages-stream.ts'
import { ReplyDraft } from './_reply-draft.ts'
import { refuseInExtra, samplingTail } from './_sampling-tail.ts'
import { sealedReply } from './sealed-reply.ts'
import { unsayable, type Wording } from './_unsayable.ts'
import type { TokenArrays } from '../tokens/token-scanner.ts'

/** The API insists on a limit. This one suffices for a turn of an agent; `maxTokens` sets another. */
const defaultMaxTokens = 4096

/**
 * Anthropic's Messages, as Anthropic, vLLM, SGLang and others serve it. A body is put together from the JSON of blocks that
 * were written once per message, so that turn n writes only what is new; messages of one side that follow each other are
 * one turn, and all system messages, wherever they stand, are the system prompt.
 *
 * The API has no place for `seed`, the name of a user and the `detail` of an image: they are not sent. The API takes earlier
 * reasoning back only with its signature: a reply with one is sent back block for block, other replies without reasoning. The
 * API returns no token ids. Other fields that it knows can be given in `sampling.extra`. A request for something that it cannot
 * do (JSON without a schema, parts of other APIs) is refused.
 */
export class MessagesDialect implements Dialect {
  readonly path = apiPaths.messages
  readonly hasTokens = false
  readonly #options: DialectOptions
  readonly #wording: Wording
  readonly #head: string
  readonly #blocksJson = new WeakMap<Message, string>()
  readonly #toolsJson = new WeakMap<readonly ToolDefinition[], string>()
  readonly #wholeTails = new WeakMap<Sampling, string>()
  readonly #streamTails = new WeakMap<Sampling, string>()

  constructor(options: DialectOptions) {
    this.#options = options
    this.#wording = { api: 'Messages', source: options.source }
    this.#head = `{"model":${JSON.stringify(options.upstreamName)}`
  }

  render(request: ModelRequest): string {
    return `${this.#prompt(request)}${this.#tail(request)}}`
  }

  /** The body for counting tokens. Anthropic refuses fields here that are only about the reply. */
  renderCounted(request: ModelRequest): string {
    const asked = this.#outputConfig(request.sampling, request.responseFormat)
    return `${this.#prompt(request)}${samplingTail({ asked, extra: undefined, reserved: [] })}}`
  }

  parse(body: unknown, context: AnswerContext, _tokens?: TokenArrays, text?: string): BackendReply {
    return readMessagesReply(body, new ReplyDraft(this.#options.source, context), text)
  }

  assemble(context: AnswerContext): StreamAssembler {
    return new MessagesStream(new ReplyDraft(this.#options.source, context))
  }

  #prompt({ messages, tools, toolChoice, parallelToolCalls, sampling }: ModelRequest): string {
    const prompt = this.#head + this.#conversation(messages)
    if (tools.length === 0) return prompt
    const choice = toolChoiceJson(toolChoice, parallelToolCalls)
    if (choice !== '') refuseInExtra(sampling.extra, 'tool_choice')
    return prompt + this.#tools(tools) + choice
  }

  #conversation(messages: readonly Message[]): string {
    let system = ''
    let turns = ''
    let side = ''
    for (const message of messages) {
      const blocks = this.#blocks(message)
      if (blocks === '') continue
      const place = placeOf(message)
      if (place === 'system') {
        system += system === '' ? blocks : `,${blocks}`
      } else if (place === side) {
        turns += `,${blocks}`
      } else {
        turns += `${side === '' ? '' : ']},'}{"role":"${place}","content":[${blocks}`
        side = place
      }
    }
    if (side !== '') turns += ']}'
    return `${system === '' ? '' : `,"system":[${system}]`},"messages":[${turns}]`
  }

  #blocks(message: Message): string {
    let json = this.#blocksJson.get(message)
    if (json === undefined) {
      json = this.#sealed(message) ?? blocksJson(message, this.#wording)
      this.#blocksJson.set(message, json)
    }
    return json
  }

  #sealed(message: Message): string | undefined {
    const { sendReasoning, modelName } = this.#options
    const reply = sendReasoning ? sealedReply(message, modelName) : undefined
    return reply?.api === 'messages' ? ownBlocks(reply.output, message) : undefined
  }

  #tools(tools: readonly ToolDefinition[]): string {
    let json = this.#toolsJson.get(tools)
    if (json === undefined) {
      const own = tools.map(({ function: { name, description, parameters, strict } }) => {
        // Elsewhere the schema of a tool without parameters may be empty; here it must say that it is an object.
        return { name, description, input_schema: { type: 'object', ...parameters }, strict }
      })
      json = `,"tools":${JSON.stringify(own)}`
      this.#toolsJson.set(tools, json)
    }
    return json
  }

  #tail({ sampling, responseFormat, stream = this.#options.stream }: ModelRequest): string {
    if (responseFormat) return this.#writeTail(sampling, stream, responseFormat)
    const tails = stream ? this.#streamTails : this.#wholeTails
    let tail = tails.get(sampling)
    if (tail === undefined) {
      tail = this.#writeTail(sampling, stream)
      tails.set(sampling, tail)
    }
    return tail
  }

  #writeTail(sampling: Sampling, stream: boolean, format?: ResponseFormat): string {
    const { temperature, topP, maxTokens = defaultMaxTokens, stop, extra } = sampling
    if (format) refuseInExtra(extra, 'output_config')
    return samplingTail({
      asked: {
        max_tokens: maxTokens,
        temperature,
        top_p: topP,
        stop_sequences: stop,
        ...this.#outputConfig(sampling, format),
        ...(stream && { stream: true }),
      },
      extra,
      reserved: ['model', 'messages', 'system', 'tools', 'stream', 'thread'],
    })
  }

  #outputConfig({ reasoningEffort: effort }: Sampling, format: ResponseFormat | undefined): JsonObject {
    if (format?.kind === 'json_object') {
      throw unsayable(this.#wording, 'response_format json_object (without a schema)', 'response_format')
    }
    if (!format && effort === undefined) return {}
    return { output_config: { effort, format: format && { type: 'json_schema', schema: format.schema } } }
  }
}

const choiceTypes = { auto: 'auto', required: 'any', none: 'none' } as const

/** Whether several tools may be called at once is said within the tool choice, so a choice is written even if none was made. */
function toolChoiceJson(choice: ToolChoice | undefined, parallel: boolean | undefined): string {
  const isSingle = parallel === false && choice !== 'none'
  if (choice === undefined && !isSingle) return ''
  const chosen =
    typeof choice === 'object' ? { type: 'tool', name: choice.name } : { type: choiceTypes[choice ?? 'auto'] }
  return `,"tool_choice":${JSON.stringify(isSingle ? { ...chosen, disable_parallel_tool_use: true } : chosen)}`
}
