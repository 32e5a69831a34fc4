import type { BackendReply } from '../backend.ts'
import type { TokenRecord } from '../../schema/index.ts'
import { messageOf, retryHeaders, statusOf } from '../errors/error-replies.ts'
import type { ReplyHead, ServerDialect } from '../server-side.ts'
import { readGenerateRequest } from './read-request.ts'

/** SGLang's own API: text or tokens in, text and tokens out. Only backends that have this API can be asked in it. */
export const generateServer: ServerDialect = {
  api: 'generate',
  read: readGenerateRequest,
  whole: wholeGenerateReply,
  // Each event of this API repeats those before it, so a single event is enough.
  stream: (head) => ({
    start: () => [],
    delta: () => [],
    repeat: () => [],
    end: (reply) => [{ data: wholeGenerateReply(head, reply) }, { data: '[DONE]' }],
  }),
  error: (error) => ({
    status: statusOf(error),
    headers: retryHeaders(error),
    body: { error: { message: messageOf(error) } },
  }),
  streamError: (error) => ({ data: { error: { message: messageOf(error) } } }),
}

/** A whole reply as SGLang writes it, without the texts of single tokens, which are not recorded. */
function wholeGenerateReply({ id, request }: ReplyHead, reply: BackendReply): Record<string, unknown> {
  const { message, finishReason, usage, tokens } = reply
  const { wantsLogprobs, body } = request
  return {
    text: message.content ?? '',
    output_ids: Array.from(tokens?.ids ?? []),
    meta_info: {
      id,
      finish_reason: { type: finishReason },
      prompt_tokens: usage.input,
      completion_tokens: usage.output,
      cached_tokens: usage.cachedInput,
      ...(tokens?.version !== undefined && { weight_version: tokens.versionSpans?.at(-1)?.version ?? tokens.version }),
      ...(wantsLogprobs && tokens && { output_token_logprobs: tokenLogprobs(tokens) }),
    },
    ...(body['return_prompt_token_ids'] === true &&
      tokens?.promptIds && { prompt_token_ids: Array.from(tokens.promptIds) }),
  }
}

function tokenLogprobs({ ids, logprobs }: TokenRecord): [number | null, number, null][] {
  return Array.from(ids, (id, index) => [logprobs[index] ?? null, id, null])
}
