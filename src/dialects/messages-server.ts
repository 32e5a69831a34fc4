import { messagesError } from './_messages-error.ts'
import { wholeMessagesReply } from './_messages-reply.ts'
import { readCountedMessages, readMessagesRequest } from './_messages-request.ts'
import { MessagesReplyStream } from './_messages-stream.ts'
import type { CountingServerDialect } from './server-dialect.ts'
import { toolInputText } from './tool-input.ts'

/** Anthropic's Messages. */
export const messagesServer: CountingServerDialect = {
  api: 'messages',
  read: readMessagesRequest,
  counting: { api: 'messages', read: readCountedMessages, whole: (tokens) => ({ input_tokens: tokens }) },
  whole: wholeMessagesReply,
  stream: (head) => new MessagesReplyStream(head),
  streamedArguments: toolInputText,
  error: messagesError,
  streamError: (error) => ({ name: 'error', data: messagesError(error).body }),
}
