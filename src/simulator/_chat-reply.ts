import type { RoutedExperts } from '../schema/index.ts'
import { tokensOf, versionOf, type Delivery } from './_answer.ts'
import { readChatRequest } from './_chat-request.ts'
import type { Dialect, StreamEvent, WireRequest } from './_dialect.ts'
import { groupTokens, type TokenGroup } from './_token-groups.ts'
import type { Token } from './_token-stream.ts'

/** OpenAI's Chat Completions, with the token fields that vLLM adds. */
export const chatDialect: Dialect = {
  read: readChatRequest,

  whole(wire, delivery) {
    const { message, finishReason, tokens } = delivery.reply
    const choice: Record<string, unknown> = {
      index: 0,
      message: { ...message, refusal: null },
      logprobs: wire.wantsLogprobs ? { content: logprobs(delivery, tokensOf(delivery), 0) } : null,
      finish_reason: finishReason,
    }
    const completion: Record<string, unknown> = { ...head(wire, delivery, 'chat.completion'), choices: [choice] }
    completion['usage'] = usageOf(delivery)
    if (wire.wantsTokenIds && tokens) {
      choice['token_ids'] = Array.from(tokens.ids)
      completion['prompt_token_ids'] = Array.from(tokens.promptIds ?? [])
      if (tokens.routedExperts) choice['routed_experts'] = wireExperts(tokens.routedExperts)
    }
    return JSON.stringify(completion)
  },

  events(wire, delivery, groupSize) {
    const tokens = tokensOf(delivery)
    const common = head(wire, delivery, 'chat.completion.chunk')
    const prompt =
      wire.wantsTokenIds && delivery.reply.tokens?.promptIds
        ? { prompt_token_ids: Array.from(delivery.reply.tokens.promptIds) }
        : {}
    const events: StreamEvent[] = [
      event({ ...common, ...prompt, choices: [choiceOf({ role: 'assistant', content: '' }, null)] }, 1, false),
    ]
    const finish = choiceOf({}, delivery.reply.finishReason)
    for (const group of groupTokens(tokens, groupSize)) {
      // Only the last group can be without text: the end marker comes with the reason for the end.
      const choice = group.part === 'marker' ? finish : choiceOf(deltaOf(group, delivery), null)
      const sampled = wire.request.captureTokens ? tokens.slice(group.from, group.to) : []
      if (wire.wantsLogprobs) choice['logprobs'] = { content: logprobs(delivery, sampled, group.from) }
      if (wire.wantsTokenIds) choice['token_ids'] = sampled.map((token) => token.id)
      if (choice !== finish) events.push(event({ ...common, choices: [choice] }, group.to, false))
    }
    const experts = delivery.reply.tokens?.routedExperts
    if (wire.wantsTokenIds && experts) finish['routed_experts'] = wireExperts(experts)
    events.push(event({ ...common, choices: [finish] }, tokens.length, true))
    if (wire.includeUsage) {
      events.push(event({ ...common, choices: [], usage: usageOf(delivery) }, tokens.length, true))
    }
    events.push({ text: 'data: [DONE]\n\n', tokens: tokens.length, isEnd: true })
    return events
  },
}

function head(wire: WireRequest, delivery: Delivery, object: string): Record<string, unknown> {
  return {
    id: `chatcmpl-${delivery.id}`,
    object,
    created: Math.floor(Date.now() / 1000),
    model: wire.model,
    system_fingerprint: null,
    ...versionOf(delivery),
  }
}

function event(data: Record<string, unknown>, tokens: number, isEnd: boolean): StreamEvent {
  return { text: `data: ${JSON.stringify(data)}\n\n`, tokens, isEnd }
}

function choiceOf(delta: Record<string, unknown>, finishReason: string | null): Record<string, unknown> {
  return { index: 0, delta, logprobs: null, finish_reason: finishReason }
}

function deltaOf({ part, call: index, text }: TokenGroup, delivery: Delivery): Record<string, unknown> {
  if (part === 'content') return { content: text }
  if (part === 'reasoning') return { reasoning_content: text }
  const call = delivery.reply.message.tool_calls?.[index]
  // A name that the token limit cut off belongs to no call.
  if (!call) return {}
  if (part === 'arguments') return { tool_calls: [{ index, function: { arguments: text } }] }
  return { tool_calls: [{ index, id: call.id, type: 'function', function: { name: text, arguments: '' } }] }
}

function logprobs(delivery: Delivery, tokens: readonly Token[], from: number): Record<string, unknown>[] {
  const values = delivery.reply.tokens?.logprobs
  return tokens.map((token, index) => ({
    token: token.piece,
    logprob: values?.[from + index] ?? 0,
    bytes: [...Buffer.from(token.piece)],
    top_logprobs: [],
  }))
}

/** As gateways before vLLM send them. */
function wireExperts({ shape, experts }: RoutedExperts): Record<string, unknown> {
  return { data: Buffer.from(experts).toString('base64'), shape, dtype: 'uint8' }
}

function usageOf(delivery: Delivery): Record<string, unknown> {
  const { input, output, cachedInput, reasoning } = delivery.reply.usage
  return {
    prompt_tokens: input,
    completion_tokens: output,
    total_tokens: input + output,
    prompt_tokens_details: { cached_tokens: cachedInput },
    completion_tokens_details: { reasoning_tokens: reasoning },
  }
}
