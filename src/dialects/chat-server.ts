import { ChatReplyStream, wholeChatReply } from './_chat-reply.ts'
import { readChatRequest } from './_chat-request.ts'
import { openAiError, openAiErrorFields } from './_openai-error.ts'
import type { ServerDialect } from './server-dialect.ts'

/** OpenAI's Chat Completions. */
export const chatServer: ServerDialect = {
  api: 'chat',
  read: readChatRequest,
  whole: wholeChatReply,
  stream: (head) => new ChatReplyStream(head),
  error: openAiError,
  streamError: (error) => ({ data: { error: openAiErrorFields(error) } }),
}
