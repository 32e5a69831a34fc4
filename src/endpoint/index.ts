export {
  type ClientReply,
  type ErrorDelivery,
  Heartbeat,
  noHeaders,
  sendError,
  sendReply,
  sendRest,
  sendWhole,
} from './client-reply.ts'
export { HttpReply } from './http-reply.ts'
export { callsIn, MessageKey, withRecordedArguments } from './message-key.ts'
export { parsedMembers } from './request-body.ts'
export { type ModelEndpoint, openModelEndpoint } from './model-endpoint.ts'
