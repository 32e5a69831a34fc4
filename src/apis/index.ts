export { chatServer } from './chat/write-reply.ts'
export { generateServer } from './generate/write-reply.ts'
export { messagesServer } from './messages/write-reply.ts'
export { maxChoices } from './chat/read-request.ts'
export {
  type CountingDialect,
  type DialectError,
  type DialectRequest,
  eventText,
  type ItemOrigin,
  newReplyId,
  readWhole,
  replyDeltas,
  type ReplyHead,
  type ReplyMemory,
  type ReplyStreamWriter,
  type ServerDialect,
  type ServerSentEvent,
} from './server-side.ts'
export { responsesFields } from './responses/read-request.ts'
export { EventList, repeatItem } from './responses/stream-items.ts'
export { type OutputItem, outputItems, repeatedFields, responseFields } from './responses/write-reply.ts'
export { responsesServer } from './responses/write-stream.ts'
export { argumentsKey, changedInput, changesOf, inputOf, sameArguments } from './tool-input.ts'
export type {
  Backend,
  BackendReply,
  BackendRequest,
  LaterVersion,
  ModelRequest,
  ClientBodyParts,
  ContinuedTokens,
  PartialReply,
  RawReply,
  ReplyDelta,
  ReplyEvent,
  ReplySink,
  ResponseFormat,
  TokenAccess,
  TokenizedConversation,
  TokenServerFacts,
  ToolChoice,
} from './backend.ts'
export {
  type AnswerContext,
  type ReplyParser,
  type Dialect,
  type EngineName,
  EventDraft,
  isSigned,
  jsonCache,
  keepSignedReply,
  messageJson,
  type StreamAssembler,
  tokenRequestOf,
} from './client-side.ts'
export { SyntheticIds } from './reply-draft.ts'
export { parseBody } from './request-fields.ts'
export {
  growingIds,
  type ScannedReply,
  scanReply,
  type PromptReader,
  minScannedBytes,
  type TokenArrays,
} from './tokens/token-scanner.ts'
export { TokenPrompt } from './tokens/token-prompt.ts'
export {
  completionsEndpoint,
  idsInCompletion,
  wasBroken,
  noTokenInput,
  sglangGenerateEndpoint,
  templateFields,
  type TokenEndpoint,
  vllmGenerateEndpoint,
} from './token-input/token-endpoints.ts'
export { isOutputLimitTooLow, readReportedError, reportedError } from './errors/reported-error.ts'
export {
  type Source,
  transportError,
  invalidUtf8,
  lostReply,
  oversizedReply,
  packedReply,
  truncatedReply,
  malformedReply,
  notJson,
} from './errors/reply-errors.ts'
export { ChatDialect } from './chat/write-request.ts'
export { GenerateReader } from './generate/read-reply.ts'
export { MessagesDialect } from './messages/write-request.ts'
export { ResponsesDialect } from './responses/write-request.ts'
