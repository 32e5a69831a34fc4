import type { BackendReply, ReplyDelta } from '../backend.ts'
import { type FinishReason, isJsonList, isJsonObject, type JsonObject, type Usage } from '../../schema/index.ts'
import { openAiError, openAiErrorFields } from '../errors/error-replies.ts'
import type { ReplyHead, ReplyStreamWriter, ServerDialect, ServerSentEvent } from '../server-side.ts'
import { readChatRequest } from './read-request.ts'

export const chatServer: ServerDialect = {
  api: 'chat',
  read: readChatRequest,
  whole: wholeChatReply,
  stream: (head) => new ChatReplyStream(head),
  error: openAiError,
  streamError: (error) => ({ data: { error: openAiErrorFields(error) } }),
}

/** A whole chat completion. Token ids, if the client asked for them, stand where vLLM puts them. */
function wholeChatReply(head: ReplyHead, reply: BackendReply): Record<string, unknown> {
  const { message, finishReason, usage, original } = reply
  const ownMessage = original?.api === 'chat' ? original.output[0] : undefined
  const choice = {
    index: 0,
    message: ownMessage ?? {
      role: 'assistant',
      content: message.content,
      refusal: message.refusal ?? null,
      ...(message.reasoning_content !== undefined && { reasoning_content: message.reasoning_content }),
      ...(message.tool_calls && { tool_calls: message.tool_calls }),
    },
    logprobs: head.request.wantsLogprobs ? logprobsIn(reply) : null,
    finish_reason: finishReason,
    ...sampledIds(head, reply),
  }
  return {
    id: head.id,
    object: 'chat.completion',
    created: head.createdAt,
    model: head.model,
    choices: [choice],
    usage: chatUsage(usage),
    ...promptIds(head, reply),
  }
}

/** The chunks of one streamed reply. This API has no blocks to open and close, so the writer has no state. */
class ChatReplyStream implements ReplyStreamWriter {
  readonly #head: ReplyHead

  constructor(head: ReplyHead) {
    this.#head = head
  }

  start(): ServerSentEvent[] {
    return [this.#chunk({ role: 'assistant', content: '', refusal: null }, null)]
  }

  delta(delta: ReplyDelta): ServerSentEvent[] {
    return [this.#chunk(deltaFields(delta), null)]
  }

  repeat([message = {}]: readonly JsonObject[]): ServerSentEvent[] {
    const { role: _told, tool_calls: calls, ...rest } = message
    if (!isJsonList(calls)) return [this.#chunk(rest, null)]
    const numbered = calls.filter(isJsonObject).map((call, index) => Object.assign({ index }, call))
    return [this.#chunk({ ...rest, tool_calls: numbered }, null)]
  }

  end(reply: BackendReply): ServerSentEvent[] {
    const usage = { data: { ...this.#common(), choices: [], usage: chatUsage(reply.usage) } }
    const last = this.#chunk({}, reply.finishReason, reply)
    return [last, ...(this.#head.request.includeUsage ? [usage] : []), { data: '[DONE]' }]
  }

  #chunk(delta: Record<string, unknown>, finishReason: FinishReason | null, reply?: BackendReply): ServerSentEvent {
    const head = this.#head
    const choice = {
      index: 0,
      delta,
      // Log-probabilities are kept here only of a backend reply that came whole, so the last chunk has all of them.
      logprobs: head.request.wantsLogprobs && reply ? logprobsIn(reply) : null,
      finish_reason: finishReason,
      ...(reply && sampledIds(head, reply)),
    }
    return {
      data: {
        ...this.#common(),
        choices: [choice],
        // If the client asked for the usage, every chunk has the field; it is null in all but the last.
        ...(head.request.includeUsage && { usage: null }),
        ...(reply && promptIds(head, reply)),
      },
    }
  }

  #common(): Record<string, unknown> {
    const { id, createdAt, model } = this.#head
    return { id, object: 'chat.completion.chunk', created: createdAt, model }
  }
}

function deltaFields(delta: ReplyDelta): Record<string, unknown> {
  switch (delta.kind) {
    case 'content':
      return { content: delta.text }
    case 'reasoning':
      return { reasoning_content: delta.text }
    case 'refusal':
      return { refusal: delta.text }
    case 'tool-call': {
      const { index, id, name } = delta
      return { tool_calls: [{ index, id, type: 'function', function: { name, arguments: '' } }] }
    }
    case 'arguments':
      return { tool_calls: [{ index: delta.index, function: { arguments: delta.text } }] }
    default:
      return delta satisfies never
  }
}

function sampledIds({ request }: ReplyHead, { tokens }: BackendReply): Record<string, unknown> {
  return request.wantsTokenIds && tokens ? { token_ids: Array.from(tokens.ids) } : {}
}

/** The log-probabilities as the backend wrote them, if it speaks this API; else those of the ids, which are named as vLLM names them. */
function logprobsIn({ raw, tokens }: BackendReply): unknown {
  const { choices }: { choices?: readonly { readonly logprobs?: unknown }[] } = raw?.document ?? {}
  if (raw || !tokens || tokens.logprobs.length < tokens.ids.length) return choices?.[0]?.logprobs ?? null
  const content = Array.from(tokens.ids, (id, index) => {
    return { token: `token_id:${id}`, logprob: tokens.logprobs[index], bytes: null, top_logprobs: [] }
  })
  return { content, refusal: null }
}

function promptIds({ request }: ReplyHead, { tokens }: BackendReply): Record<string, unknown> {
  return request.wantsTokenIds && tokens?.promptIds ? { prompt_token_ids: Array.from(tokens.promptIds) } : {}
}

function chatUsage({ input, output, cachedInput, reasoning }: Usage): Record<string, unknown> {
  return {
    prompt_tokens: input,
    completion_tokens: output,
    total_tokens: input + output,
    prompt_tokens_details: { cached_tokens: cachedInput },
    completion_tokens_details: { reasoning_tokens: reasoning },
  }
}
