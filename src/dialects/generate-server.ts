import { messageOf, retryHeaders, statusOf } from './_error-facts.ts'
import { GenerateReplyStream, wholeGenerateReply } from './_generate-reply.ts'
import { readGenerateRequest } from './_generate-request.ts'
import type { ServerDialect } from './server-dialect.ts'

/** SGLang's own API, a text or tokens in and a text and tokens out. Only a backend that has it can be asked in it. */
export const generateServer: ServerDialect = {
  api: 'generate',
  read: readGenerateRequest,
  whole: wholeGenerateReply,
  stream: (head) => new GenerateReplyStream(head),
  error: (error) => ({
    status: statusOf(error),
    headers: retryHeaders(error),
    body: { error: { message: messageOf(error) } },
  }),
  streamError: (error) => ({ data: { error: { message: messageOf(error) } } }),
}
