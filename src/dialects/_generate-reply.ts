import type { BackendReply } from '../inference/index.ts'
import type { TokenRecord } from '../schema/index.ts'
import type { ReplyHead, ReplyStreamWriter, WireEvent } from './server-dialect.ts'

/**
 * A whole reply as SGLang writes it, made from the recorded reply. It lacks the texts of single tokens, which are not
 * recorded.
 */
export function wholeGenerateReply({ id, request }: ReplyHead, reply: BackendReply): Record<string, unknown> {
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

/** Writes a streamed reply. Each event of this API repeats those before it, so a single event is enough. */
export class GenerateReplyStream implements ReplyStreamWriter {
  readonly #head: ReplyHead

  constructor(head: ReplyHead) {
    this.#head = head
  }

  start(): WireEvent[] {
    return []
  }

  /** This API has no original words to repeat. */
  repeat(): WireEvent[] {
    return []
  }

  delta(): WireEvent[] {
    return []
  }

  end(reply: BackendReply): WireEvent[] {
    return [{ data: wholeGenerateReply(this.#head, reply) }, { data: '[DONE]' }]
  }
}

function tokenLogprobs({ ids, logprobs }: TokenRecord): [number | null, number, null][] {
  return Array.from(ids, (id, index) => [logprobs[index] ?? null, id, null])
}
