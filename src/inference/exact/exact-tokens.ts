import {
  type Backend,
  type ContinuedTokens,
  jsonCache,
  type ModelRequest,
  templateFields,
  TokenPrompt,
} from '../../apis/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { sameNumbers, withAbort } from '../../kit/index.ts'
import { isJsonObject, type Json, type Message, type ToolDefinition } from '../../schema/index.ts'
import type { RenderSettings } from '../../tokenizer/index.ts'
import type { ModelConfig } from '../config.ts'
import type { CompleteReply } from '../model-client.ts'
import { finishReasonFor, readSampled } from './read-sampled.ts'
import { openTokenStream, type TokenStream } from './token-stream.ts'

/** A request whose prompt is written as token ids, and what is needed to read its reply. */
export interface PreparedRequest {
  readonly request: ModelRequest & { readonly prompt: TokenPrompt }
  readonly stream: TokenStream
  readonly promptIds: Int32Array
  readonly startsInReasoning: boolean
}

/** Where the ids of a prompt came from: a later turn goes on from there. */
interface PromptOrigin {
  readonly prompt: TokenPrompt
  /** The tools and variables that the prompt begins with. */
  readonly settings: string
}

/**
 * Keeps the tokens of a model's conversations exact. A turn's prompt is the ids of the last prompt and reply, and the ids of only
 * what is new. It is sent as ids, and the reply is read from its ids here.
 */
export class ExactTokens {
  readonly #config: ModelConfig
  readonly #backends: () => readonly Backend[]
  readonly #signal: AbortSignal
  /** By the ids that are recorded with a reply, so that a prompt is kept exactly as long as its record. */
  readonly #origins = new WeakMap<Int32Array, PromptOrigin>()
  readonly #toolsJson = jsonCache((tools: readonly ToolDefinition[]) => JSON.stringify(tools))
  #opening: Promise<TokenStream> | undefined

  /** `signal`: the model is closed. */
  constructor(config: ModelConfig, backends: () => readonly Backend[], signal: AbortSignal) {
    this.#config = config
    this.#backends = backends
    this.#signal = signal
  }

  /** Opens the token stream, once. A failure is not remembered: the backend may come back. */
  open(): Promise<TokenStream> {
    this.#opening ??= openTokenStream(this.#config, this.#backends(), this.#signal).catch((error: unknown) => {
      this.#opening = undefined
      throw error
    })
    return this.#opening
  }

  /** The model has other backends: they are checked before the next request. */
  reset(): void {
    void this.close()
    this.#opening = undefined
  }

  /** Ends the thread that encodes long texts, if there is one. */
  async close(): Promise<void> {
    const stream = await this.#opening?.catch(() => undefined)
    await stream?.encoder.close()
  }

  async prepare(request: ModelRequest, signal: AbortSignal): Promise<PreparedRequest> {
    const stream = await withAbort(this.open(), signal)
    refuseForced(request)
    const settings = settingsOf(request)
    const key = this.#toolsJson(request.tools) + JSON.stringify(settings.variables)
    const { prompt, end } =
      (await this.#continued(stream, request, { settings, key })) ??
      (await rendered(stream, request.messages, settings))
    const promptIds = prompt.ids
    this.#origins.set(promptIds, { prompt, settings: key })
    const { markers } = stream.template.reasoning
    // A stream would be passed on as it comes, in which nobody could tell reasoning from calls.
    const { sink: _unused, ...rest } = request
    return {
      stream,
      promptIds,
      startsInReasoning: markers !== undefined && end.trimEnd().endsWith(markers.open),
      request: { ...rest, prompt, stream: false, captureTokens: true, sampling: samplingFor(stream, request, prompt) },
    }
  }

  /** The reply as a message, with the ids of its prompt. */
  read(reply: CompleteReply, { request, stream, promptIds, startsInReasoning }: PreparedRequest): CompleteReply {
    const { tokens } = reply
    if (!tokens) throw malformed(reply, 'it has no token ids')
    if (tokens.promptIds && !sameNumbers(tokens.promptIds, promptIds)) {
      throw malformed(reply, 'the backend says that its prompt had other token ids than those it was sent')
    }
    const { endIds, tokenizer, template } = stream
    const last = tokens.ids.at(-1)
    const shown = last !== undefined && endIds.has(last) ? tokens.ids.subarray(0, -1) : tokens.ids
    const message = readSampled(
      { text: tokenizer.decode(shown), startsInReasoning },
      {
        markers: template.reasoning.markers,
        toolFormat: request.tools.length > 0 && request.toolChoice !== 'none' ? template.toolFormat : undefined,
        messages: request.conversation ?? request.messages,
      },
    )
    return {
      ...reply,
      message,
      finishReason: finishReasonFor(reply.finishReason, message),
      tokens: { ...tokens, promptIds },
    }
  }

  /** The prompt that goes on from an earlier reply; undefined if it cannot, and the conversation is rendered anew. */
  async #continued(
    stream: TokenStream,
    { messages, continues }: ModelRequest,
    { settings, key }: { readonly settings: RenderSettings; readonly key: string },
  ): Promise<RenderedPrompt | undefined> {
    const reply = continues && messages[continues.count - 1]
    if (!continues || reply?.role !== 'assistant') return undefined
    const known = this.#origins.get(continues.promptIds)
    const isSame = known ? known.settings === key : await beginsAsRendered(stream, messages, { continues, settings })
    if (!isSame) return undefined
    const { template, encoder, closeId } = stream
    const tools = template.dependsOnTools ? settings.tools : []
    const { text } = template.bridge.after(reply, messages.slice(continues.count), { ...settings, tools })
    if (text === undefined) return undefined
    const added = await encoder.encode(text)
    // The model has ended its reply itself, unless it was cut off.
    const rest = continues.ids.at(-1) === closeId ? withoutFirst(added) : added
    const before = known?.prompt ?? TokenPrompt.of(continues.promptIds)
    return { prompt: before.extended(continues.ids, ...rest), end: text }
  }
}

interface RenderedPrompt {
  readonly prompt: TokenPrompt
  /** The text that the prompt ends with. */
  readonly end: string
}

async function rendered(
  { template, encoder }: TokenStream,
  messages: readonly Message[],
  settings: RenderSettings,
): Promise<RenderedPrompt> {
  const text = template.bridge.whole(messages, settings)
  return { prompt: TokenPrompt.of(...(await encoder.encode(text))), end: text }
}

/** Whether a prompt that was read back from disk begins as the conversation does now: with the same tools, and in the same template. */
async function beginsAsRendered(
  stream: TokenStream,
  messages: readonly Message[],
  { continues, settings }: { readonly continues: ContinuedTokens; readonly settings: RenderSettings },
): Promise<boolean> {
  const first = messages.findIndex(({ role }) => role === 'assistant')
  const { ids } = (await rendered(stream, messages.slice(0, first), settings)).prompt
  return sameNumbers(ids, continues.promptIds.subarray(0, ids.length))
}

function withoutFirst([first, ...others]: readonly Int32Array[]): Int32Array[] {
  return first ? [first.subarray(1), ...others] : []
}

function settingsOf({ tools, sampling }: ModelRequest): RenderSettings {
  const { reasoningEffort, extra = {} } = sampling
  for (const field of templateFields) {
    if (field === 'chat_template_kwargs' || !Object.hasOwn(extra, field)) continue
    throw refused(`sampling.extra.${field} changes how the conversation is rendered`, field)
  }
  const { chat_template_kwargs: given } = extra
  const variables: Record<string, Json> = {}
  for (const [name, value] of Object.entries(isJsonObject(given) ? given : {})) {
    if (value !== undefined) variables[name] = value
  }
  if (reasoningEffort !== undefined) variables['reasoning_effort'] = reasoningEffort
  return { tools, variables }
}

function refuseForced({ toolChoice }: ModelRequest): void {
  if (toolChoice === undefined || toolChoice === 'auto' || toolChoice === 'none') return
  throw refused('a tool call cannot be forced (tool_choice)', 'tool_choice')
}

function refused(what: string, param: string): MillraceError {
  const message = `${what}, which a model with exact tokens does not support. Leave it out, or ask a model without exact tokens.`
  return new MillraceError('model_rejected', message, { data: { status: 400, param } })
}

/** Servers of ids end a reply after 16 tokens if no limit is given, so the rest of the context is named as the limit. */
function samplingFor(
  { contextLength }: TokenStream,
  { sampling }: ModelRequest,
  { length }: TokenPrompt,
): ModelRequest['sampling'] {
  if (contextLength === undefined) {
    if (sampling.maxTokens !== undefined) return sampling
    throw refused(
      'the length of the context is not known, and no limit of the reply is given (maxTokens)',
      'max_tokens',
    )
  }
  const left = contextLength - length
  if (left <= 0) {
    const message = `the prompt has ${length} tokens, and the context of the model has ${contextLength}`
    throw new MillraceError('context_length', message, { data: { status: 400, param: 'messages' } })
  }
  return { ...sampling, maxTokens: Math.min(sampling.maxTokens ?? left, left) }
}

function malformed({ backend }: CompleteReply, problem: string): MillraceError {
  return new MillraceError('model_malformed', `the reply of ${backend} cannot be used: ${problem}`, {
    data: { backend },
  })
}
