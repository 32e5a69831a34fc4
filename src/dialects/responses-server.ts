import type { BackendReply } from '../inference/index.ts'
import { openAiError, openAiErrorFields } from './_openai-error.ts'
import { isCut, responseDocument } from './_responses-document.ts'
import { outputItems } from './_responses-output.ts'
import { readResponsesRequest, wantsEncryptedReasoning } from './_responses-request.ts'
import { ResponsesReplyStream } from './_responses-stream.ts'
import type { CountingServerDialect, ReplyHead } from './server-dialect.ts'

/** The sequence number of an error, which is always the last event. Clients insist on a number, and some keep it in 32 bits. */
const afterAll = 2 ** 31 - 1

/** OpenAI's Responses API. */
export const responsesServer: CountingServerDialect = {
  api: 'responses',
  read: readResponsesRequest,
  counting: {
    api: 'responses',
    read: (body, before) => ({ ...readResponsesRequest(body, before), stream: false }),
    whole: (tokens) => ({ object: 'response.input_tokens', input_tokens: tokens }),
  },
  whole: wholeResponse,
  stream: (head) => new ResponsesReplyStream(head),
  error: openAiError,
  streamError(error) {
    const fields = openAiErrorFields(error)
    // The fields are documented flat, but OpenAI itself sends them nested; clients look for one or the other.
    return { name: 'error', data: { ...fields, type: 'error', sequence_number: afterAll, error: fields } }
  },
}

function wholeResponse(head: ReplyHead, reply: BackendReply): Record<string, unknown> {
  const { original, message, finishReason } = reply
  if (original?.api === 'responses') return responseDocument(head, original.output, reply)
  const output = outputItems(message, {
    head,
    isEncrypted: wantsEncryptedReasoning(head.request.body),
    isCut: isCut(finishReason),
  })
  return responseDocument(head, output, reply)
}
