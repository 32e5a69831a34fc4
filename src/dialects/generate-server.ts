import { messageOf, retryHeaders, statusOf } from './_error-facts.ts'
import { GenerateReplyStream, wholeGenerateReply } from './_generate-reply.ts'
import { readGenerateRequest } from './_generate-request.ts'
import type { ServerDialect } from './server-dialect.ts'

/** SGLang's own API: text or tokens in, text and tokens out. Only backends that have this API can be asked in it. */
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
