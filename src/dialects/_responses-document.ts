import type { BackendReply } from '../inference/index.ts'
import type { FinishReason, Usage } from '../schema/index.ts'
import { isJsonObject } from './_json.ts'
import type { OutputItem } from './_responses-output.ts'
import type { ReplyHead } from './server-dialect.ts'

/** Why a reply is incomplete, by its finish reason; undefined if it is complete. */
const cutReasons: Readonly<Partial<Record<FinishReason, string>>> = {
  length: 'max_output_tokens',
  content_filter: 'content_filter',
}

export function isCut(finishReason: FinishReason): boolean {
  return cutReasons[finishReason] !== undefined
}

/** The response object, which repeats fields of the request. Without a reply, it is that of a response that has only begun. */
export function responseDocument(
  { id, model, createdAt, request: { body } }: ReplyHead,
  output: readonly OutputItem[],
  reply?: BackendReply,
): Record<string, unknown> {
  const cutReason = reply && cutReasons[reply.finishReason]
  return {
    id,
    object: 'response',
    created_at: createdAt,
    // The official types have this field, but only OpenAI has such programs.
    access_programs: null,
    status: reply ? (cutReason ? 'incomplete' : 'completed') : 'in_progress',
    background: false,
    error: null,
    incomplete_details: cutReason ? { reason: cutReason } : null,
    instructions: body['instructions'] ?? null,
    max_output_tokens: body['max_output_tokens'] ?? null,
    metadata: body['metadata'] ?? {},
    model,
    output,
    parallel_tool_calls: body['parallel_tool_calls'] ?? true,
    previous_response_id: body['previous_response_id'] ?? null,
    reasoning: { effort: null, summary: null, ...(isJsonObject(body['reasoning']) && body['reasoning']) },
    store: body['store'] ?? true,
    temperature: body['temperature'] ?? null,
    text: { format: { type: 'text' }, ...(isJsonObject(body['text']) && body['text']) },
    tool_choice: body['tool_choice'] ?? 'auto',
    tools: body['tools'] ?? [],
    top_p: body['top_p'] ?? null,
    truncation: body['truncation'] ?? 'disabled',
    usage: reply ? responseUsage(reply.usage) : null,
  }
}

function responseUsage({ input, cachedInput, output, reasoning }: Usage): Record<string, unknown> {
  return {
    input_tokens: input,
    input_tokens_details: { cached_tokens: cachedInput, cache_write_tokens: 0 },
    output_tokens: output,
    output_tokens_details: { reasoning_tokens: reasoning },
    total_tokens: input + output,
  }
}
