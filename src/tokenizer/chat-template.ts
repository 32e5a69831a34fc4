import { Template } from '@huggingface/jinja'
import { MillraceError } from '../errors/index.ts'
import { type AssistantMessage, isJsonObject, type Json, type Message, type ToolDefinition } from '../schema/index.ts'
import { pythonStrings, usePythonStrings } from './python-strings.ts'

export interface TemplateInput {
  readonly messages: readonly Message[]
  readonly tools: readonly ToolDefinition[]
  /** Whether the text ends where the next reply begins. */
  readonly addGenerationPrompt: boolean
  /** More variables of this rendering, such as `enable_thinking`. */
  readonly variables?: Readonly<Record<string, Json>> | undefined
}

export interface ChatTemplateOptions {
  readonly source: string
  /** The variables that every rendering gets beside the conversation: `bos_token`, `eos_token`, options such as `enable_thinking`. */
  readonly variables: Readonly<Record<string, Json>>
}

/** The chat template of a model: writes a conversation as the text that the model was trained on. */
export class ChatTemplate {
  readonly source: string
  readonly #template: Template
  readonly #variables: Readonly<Record<string, Json>>

  constructor({ source, variables }: ChatTemplateOptions) {
    this.source = source
    this.#variables = variables
    try {
      this.#template = new Template(source)
      usePythonStrings(this.#template.parsed)
    } catch (error) {
      throw refusal('it cannot be parsed', error)
    }
  }

  render({ messages, tools, addGenerationPrompt, variables }: TemplateInput): string {
    try {
      return this.#template.render({
        ...pythonStrings,
        ...this.#variables,
        ...variables,
        messages: messages.map(templateMessage),
        ...(tools.length > 0 && { tools: tools.map(templateTool) }),
        add_generation_prompt: addGenerationPrompt,
      })
    } catch (error) {
      if (error instanceof MillraceError) throw error
      throw refusal('it refuses this conversation', error)
    }
  }
}

function refusal(what: string, cause: unknown): MillraceError {
  const why = cause instanceof Error ? cause.message : String(cause)
  return new MillraceError('model_rejected', `the chat template cannot be used: ${what}: ${why}`, { cause })
}

/** A tool as engines write it: in this order, and without `strict: false`, which some APIs say and others leave out. */
function templateTool({ type, function: { name, description, parameters, strict } }: ToolDefinition): object {
  const written = { name, ...(description !== undefined && { description }), parameters }
  return { type, function: strict ? { ...written, strict } : written }
}

/** A message as templates expect it: text as one string, arguments as an object where they are one, empty fields left out. */
function templateMessage(message: Message): object {
  if (message.role === 'assistant') return templateReply(message)
  const { content } = message
  if (typeof content === 'string') return message
  const other = content.find(({ type }) => type !== 'text')
  if (other) {
    throw new MillraceError(
      'model_rejected',
      `a message has a part of type ${other.type}, and only the engine knows its tokens: exact tokens work with text only`,
    )
  }
  // As vLLM joins them for templates that take text.
  return { ...message, content: content.map((part) => (part.type === 'text' ? part.text : '')).join('\n') }
}

function templateReply({
  content,
  tool_calls: calls,
  reasoning_content: reasoning,
  ...rest
}: AssistantMessage): object {
  return {
    ...rest,
    content: content ?? '',
    ...(reasoning !== undefined && { reasoning_content: reasoning, reasoning }),
    ...(calls && {
      tool_calls: calls.map((call) => ({
        ...call,
        function: { name: call.function.name, arguments: argumentsObject(call.function.arguments) },
      })),
    }),
  }
}

/** Some templates walk over arguments, so they get an object if the text is one. */
function argumentsObject(text: string): Json {
  try {
    const value: unknown = JSON.parse(text)
    return isJsonObject(value) ? value : text
  } catch {
    return text
  }
}
