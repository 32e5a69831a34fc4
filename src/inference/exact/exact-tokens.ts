import {
  type Backend,
  type ContinuedTokens,
  jsonCache,
  type ModelRequest,
  templateFields,
  TokenPrompt,
} from '../../apis/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { retryAfterOf } from '../../http/index.ts'
import { sameNumbers, sleep, withAbort } from '../../kit/index.ts'
import {
  type AssistantMessage,
  isJsonObject,
  type Json,
  type Message,
  type ToolDefinition,
} from '../../schema/index.ts'
import { loadTokenizer, type ModelTokenizer, type RenderSettings } from '../../tokenizer/index.ts'
import type { ModelConfig } from '../config.ts'
import type { CompleteReply } from '../model-client.ts'
import { retryDelayMs, retryRule } from '../model/retry.ts'
import { finishReasonFor, readSampled } from './read-sampled.ts'
import { openTokenStream, type TokenStream } from './token-stream.ts'

/** How long a backend that did not answer may go without being compared. */
const againMs = 10_000

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
  /** When to open again, because not all backends have been compared. */
  #againAt = Infinity
  /** Kept while backends come and go: reading a large tokenizer holds the loop for seconds. */
  #loaded: ModelTokenizer | undefined

  /** `signal`: the model is closed. */
  constructor(config: ModelConfig, backends: () => readonly Backend[], signal: AbortSignal) {
    this.#config = config
    this.#backends = backends
    this.#signal = signal
  }

  /** Opens the token stream, once. A failure is not remembered: the backend may come back. */
  open(): Promise<TokenStream> {
    if (performance.now() >= this.#againAt) this.reset()
    this.#opening ??= this.#openInTries().catch((error: unknown) => {
      this.#opening = undefined
      // Its files may be changed before the next attempt.
      this.#loaded = undefined
      throw error
    })
    return this.#opening
  }

  /** A backend that is busy or restarts fails no call that it would otherwise be asked again for. */
  async #openInTries(): Promise<TokenStream> {
    for (let failures = 1; ; failures += 1) {
      try {
        const load = (folder: string) => this.#load(folder)
        const stream = await openTokenStream(this.#config, this.#backends(), { load, signal: this.#signal })
        this.#againAt = stream.isPartial ? performance.now() + againMs : Infinity
        return stream
      } catch (thrown) {
        const error = MillraceError.from(thrown, 'internal')
        if (!error.retryable || failures >= this.#config.maxTries) throw error
        const retryAfterMs = retryAfterOf(error)
        await sleep(retryDelayMs(retryRule(error.code), { failures, retryAfterMs, random: Math.random }), this.#signal)
      }
    }
  }

  async #load(folder: string): Promise<ModelTokenizer> {
    if (this.#loaded?.folder !== folder) this.#loaded = await loadTokenizer(folder)
    return this.#loaded
  }

  /** The model has new backends: they are checked before the next request. */
  reset(): void {
    void this.close()
    this.#opening = undefined
    this.#againAt = Infinity
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
      (await encoded(stream, stream.template.bridge.whole(request.messages, settings)))
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

  /** How many tokens the prompt of a request has. */
  async count({ messages, ...request }: ModelRequest, signal: AbortSignal): Promise<number> {
    const stream = await withAbort(this.open(), signal)
    const text = stream.template.bridge.whole(messages, settingsOf({ messages, ...request }))
    return (await encoded(stream, text)).prompt.length
  }

  /** The reply as a message, with the ids of its prompt. */
  read(reply: CompleteReply, { request, stream, promptIds, startsInReasoning }: PreparedRequest): CompleteReply {
    const { tokens } = reply
    if (!tokens) throw malformed(reply, 'it has no token ids')
    if (tokens.promptIds && !sameNumbers(tokens.promptIds, promptIds)) {
      throw malformed(reply, 'the backend says that its prompt had other token ids than those it was sent')
    }
    const { input } = reply.usage
    if (input > 0 && input !== promptIds.length) {
      throw malformed(reply, `the backend has read ${input} tokens, and its prompt had ${promptIds.length}`)
    }
    const { endIds, tokenizer, template } = stream
    const { tools, toolChoice, parallelToolCalls, sampling, conversation = request.messages } = request
    const { finishReason, usage } = reply
    const last = tokens.ids.at(-1)
    const isEnded = last !== undefined && endIds.has(last)
    const text = tokenizer.decode(isEnded ? tokens.ids.subarray(0, -1) : tokens.ids)
    const message = readSampled(
      // The sampled tokens include the stop sequence that ended them; the text, as in every API, does not.
      { text: isEnded || finishReason === 'length' ? text : beforeStop(text, sampling.stop), startsInReasoning },
      {
        markers: template.reasoning.markers,
        toolFormat: tools.length > 0 && toolChoice !== 'none' ? template.toolFormat : undefined,
        messages: conversation,
        isCut: finishReason === 'length',
        ...(parallelToolCalls === false && { maxCalls: 1 }),
      },
    )
    return {
      ...reply,
      message,
      finishReason: finishReasonFor(finishReason, message),
      usage: {
        ...usage,
        input: usage.input || promptIds.length,
        reasoning: usage.reasoning || reasoningTokens(stream, message, tokens.ids),
      },
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
    if (known?.settings !== key && !(await beginsAsRendered(stream, messages, { continues, settings })))
      return undefined
    const { template, encoder, closeId } = stream
    const tools = template.dependsOnTools ? settings.tools : []
    // A rendering of a short conversation stands for that of the whole, unless the template looks at what is in it.
    const history = template.dependsOnHistory ? { before: messages.slice(0, continues.count - 1) } : {}
    const { text } = template.bridge.after(reply, messages.slice(continues.count), { ...settings, tools, ...history })
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

async function encoded({ encoder }: TokenStream, text: string): Promise<RenderedPrompt> {
  return { prompt: TokenPrompt.of(...(await encoder.encode(text))), end: text }
}

/** Whether a prompt begins as the conversation does now. It may have been read back from disk, and the tools may have changed. */
async function beginsAsRendered(
  stream: TokenStream,
  messages: readonly Message[],
  { continues, settings }: { readonly continues: ContinuedTokens; readonly settings: RenderSettings },
): Promise<boolean> {
  const first = messages.findIndex(({ role }) => role === 'assistant')
  if (first === 0) return false
  const text = stream.template.bridge.beginning(messages.slice(0, first), settings)
  const { ids } = (await encoded(stream, text)).prompt
  return sameNumbers(ids, continues.promptIds.subarray(0, ids.length))
}

/** Servers of ids do not count reasoning. 0 if its end is not one token. */
function reasoningTokens(
  { template, tokenizer }: TokenStream,
  { reasoning_content: reasoning }: AssistantMessage,
  ids: Int32Array,
): number {
  const end = reasoning && template.reasoning.markers && tokenizer.idOf(template.reasoning.markers.close)
  if (typeof end !== 'number') return 0
  const at = ids.indexOf(end)
  return at === -1 ? ids.length : at + 1
}

function beforeStop(text: string, stop: readonly string[] = []): string {
  const places = stop.map((sequence) => (sequence === '' ? -1 : text.indexOf(sequence))).filter((at) => at !== -1)
  return places.length === 0 ? text : text.slice(0, Math.min(...places))
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
