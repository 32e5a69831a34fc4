import { messagesError } from './_messages-error.ts'
import { wholeMessagesReply } from './_messages-reply.ts'
import { readMessagesRequest } from './_messages-request.ts'
import { MessagesReplyStream } from './_messages-stream.ts'
import type { ServerDialect } from './server-dialect.ts'

/** Anthropic's Messages. */
export const messagesServer: ServerDialect = {
  api: 'messages',
  read: readMessagesRequest,
  whole: wholeMessagesReply,
  stream: (head) => new MessagesReplyStream(head),
  error: messagesError,
  streamError: (error) => ({ name: 'error', data: messagesError(error).body }),
}
