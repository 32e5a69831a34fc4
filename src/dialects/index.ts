export { chatServer } from './chat-server.ts'
export { generateServer } from './generate-server.ts'
export { messagesServer } from './messages-server.ts'
export { maxChoices } from './_chat-request.ts'
export { parseBody } from './parse-body.ts'
export { newReplyId } from './reply-id.ts'
export { responsesServer } from './responses-server.ts'
export type {
  CountingDialect,
  DialectError,
  DialectRequest,
  ItemOrigin,
  ReplyHead,
  ReplyMemory,
  SaidBefore,
  ReplyStreamWriter,
  ServerDialect,
  WireEvent,
} from './server-dialect.ts'
export { changedInput, changesOf, inputOf } from './claude-code-calls.ts'
export { argumentsKey, sameArguments } from './tool-input.ts'
export { replyDeltas } from './reply-deltas.ts'
export { eventText } from './wire-event.ts'
