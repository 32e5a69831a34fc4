import {
  apiPaths,
  type AssistantMessage,
  type ContentPart,
  type JsonObject,
  type Message,
  type Sampling,
  type ToolCall,
  type ToolDefinition,
  type ToolMessage,
} from '../../schema/index.ts'
import type { BackendReply, ModelRequest, ResponseFormat, ToolChoice } from '../backend.ts'
import {
  type AnswerContext,
  type Dialect,
  type DialectOptions,
  fieldsJson,
  unsupportedPart,
  jsonCache,
  refuseInExtra,
  samplingTail,
  signedReply,
  type StreamAssembler,
  unsupportedError,
  type RequestTarget,
} from '../client-side.ts'
import { ReplyDraft } from '../reply-draft.ts'
import type { TokenArrays } from '../tokens/token-scanner.ts'
import { inputJson } from '../tool-input.ts'
import { readMessagesReply } from './read-reply.ts'
import { MessagesStream } from './read-stream.ts'

/** The API insists on a limit. This one suffices for a turn of an agent; `maxTokens` sets another. */
const defaultMaxTokens = 4096

/**
 * Anthropic's Messages, as Anthropic, vLLM, SGLang and others serve it. A body is put together from the JSON of blocks that
 * were written once per message, so that turn n writes only what is new; messages of one side that follow each other are
 * one turn, and all system messages, wherever they stand, are the system prompt.
 *
 * The API has no place for `seed`, the name of a user and the `detail` of an image: they are not sent. It takes earlier
 * reasoning back only with its signature: a reply with one is sent back block for block, other replies without reasoning. A
 * request for something that it cannot do (JSON without a schema, parts of other APIs) is refused.
 */
export class MessagesDialect implements Dialect {
  readonly path = apiPaths.messages
  readonly hasTokens = false
  readonly #options: DialectOptions
  readonly #target: RequestTarget
  readonly #head: string
  readonly #blocks = jsonCache((message: Message) => this.#signed(message) ?? blocksJson(message, this.#target))
  readonly #tools = jsonCache(toolsJson)

  constructor(options: DialectOptions) {
    this.#options = options
    this.#target = { api: 'Messages', source: options.source }
    this.#head = `{"model":${JSON.stringify(options.upstreamName)}`
  }

  render(request: ModelRequest): string {
    return `${this.#prompt(request)}${this.#tail(request)}}`
  }

  /** The body for counting tokens. Anthropic refuses fields here that are only about the reply. */
  renderCounted(request: ModelRequest): string {
    const asked = this.#outputConfig(request.sampling, request.responseFormat)
    return `${this.#prompt(request)}${fieldsJson(asked)}}`
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
      const place = sideOf(message)
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

  #signed(message: Message): string | undefined {
    const { sendReasoning, modelName } = this.#options
    const reply = sendReasoning ? signedReply(message, modelName) : undefined
    return reply?.api === 'messages' ? ownBlocks(reply.output, message) : undefined
  }

  #tail({ sampling, responseFormat: format, stream = this.#options.stream }: ModelRequest): string {
    const { temperature, topP, maxTokens = defaultMaxTokens, stop, extra } = sampling
    if (format) refuseInExtra(extra, 'output_config')
    const asked = {
      max_tokens: maxTokens,
      temperature,
      top_p: topP,
      stop_sequences: stop,
      ...this.#outputConfig(sampling, format),
      ...(stream && { stream: true }),
    }
    return samplingTail(asked, extra, ['model', 'messages', 'system', 'tools', 'stream', 'thread'])
  }

  #outputConfig({ reasoningEffort: effort }: Sampling, format: ResponseFormat | undefined): JsonObject {
    if (format?.kind === 'json_object') {
      throw unsupportedError(this.#target, 'response_format json_object (without a schema)', 'response_format')
    }
    if (!format && effort === undefined) return {}
    return { output_config: { effort, format: format && { type: 'json_schema', schema: format.schema } } }
  }
}

function toolsJson(tools: readonly ToolDefinition[]): string {
  const own = tools.map(({ function: { name, description, parameters, strict } }) => {
    // Elsewhere the schema of a tool without parameters may be empty; here it must say that it is an object.
    return { name, description, input_schema: { type: 'object', ...parameters }, strict }
  })
  return `,"tools":${JSON.stringify(own)}`
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

function sideOf({ role }: Message): 'system' | 'user' | 'assistant' {
  if (role === 'assistant') return role
  return role === 'system' || role === 'developer' ? 'system' : 'user'
}

/** The content blocks of a message as JSON, separated by commas; empty if it says nothing. */
function blocksJson(message: Message, target: RequestTarget): string {
  if (message.role === 'assistant') return assistantBlocks(message)
  return message.role === 'tool' ? toolResult(message, target) : contentBlocks(message.content, target)
}

function contentBlocks(content: string | readonly ContentPart[], target: RequestTarget): string {
  if (typeof content === 'string') return textBlock(content)
  return joined(content.map((part) => partBlock(part, target)))
}

function partBlock(part: ContentPart, target: RequestTarget): string {
  if (part.type === 'text') return textBlock(part.text)
  if (part.type === 'image_url') return imageBlock(part.image_url.url, target)
  if (part.api === 'messages') return JSON.stringify(part.value)
  throw unsupportedPart(target, part)
}

/** A block of text, or nothing if the text has no visible character: models write such texts, and the API refuses them. */
function textBlock(text: string): string {
  return /\S/.test(text) ? JSON.stringify({ type: 'text', text }) : ''
}

function imageBlock(url: string, target: RequestTarget): string {
  if (/^https?:/i.test(url)) return JSON.stringify({ type: 'image', source: { type: 'url', url } })
  // Only the head is matched: the data may be megabytes long.
  const [head, mediaType] = /^data:([^;,]+);base64,/i.exec(url) ?? []
  if (head === undefined) throw unsupportedError(target, `an image at "${url.slice(0, 40)}"`, 'messages')
  const data = url.slice(head.length)
  return JSON.stringify({ type: 'image', source: { type: 'base64', media_type: mediaType, data } })
}

/** Blocks as the server wrote them, without empty texts, which it would refuse, and with the message's input of calls. */
function ownBlocks(blocks: readonly JsonObject[], message: Message): string {
  const isEmpty = ({ type, text }: JsonObject): boolean =>
    type === 'text' && typeof text === 'string' && !/\S/.test(text)
  const calls = (message.role === 'assistant' ? message.tool_calls : undefined)?.values()
  const ownBlock = (block: JsonObject): string => {
    const call = block['type'] === 'tool_use' ? calls?.next().value : undefined
    return call ? withInput(block, call) : JSON.stringify(block)
  }
  return joined(blocks.map((block) => (isEmpty(block) ? '' : ownBlock(block))))
}

/** Reasoning is left out: the API takes it back only with its signature, which a message lacks. */
function assistantBlocks(message: AssistantMessage): string {
  const { content, refusal = '', tool_calls: calls = [], others = [] } = message
  const own = others.flatMap(({ api, value }) => (api === 'messages' ? [JSON.stringify(value)] : []))
  const called = calls.map((call) => withInput({ type: 'tool_use', id: call.id, name: call.function.name }, call))
  return joined([...own, textBlock(content || refusal), ...called])
}

/** The block with the input of the call, put in as text: a parsed object could not hold every number. */
function withInput({ input: _input, ...block }: JsonObject, { function: { arguments: written } }: ToolCall): string {
  return `${JSON.stringify(block).slice(0, -1)},"input":${inputJson(written)}}`
}

function toolResult({ tool_call_id: id, content, is_error: isError }: ToolMessage, target: RequestTarget): string {
  const blocks = contentBlocks(content, target)
  const contentJson = blocks === '' ? '' : `,"content":[${blocks}]`
  return `{"type":"tool_result","tool_use_id":${JSON.stringify(id)}${contentJson}${isError ? ',"is_error":true' : ''}}`
}

function joined(blocks: readonly string[]): string {
  return blocks.filter((block) => block !== '').join(',')
}
