import type { z } from 'zod'
import { sessionOptionsSchema } from '../../gateway/index.ts'
import { sharedSchemas, type ApiDescription, type Operation } from '../_openapi.ts'
import * as sessions from './_session-schemas.ts'
import * as wire from './_wire-schemas.ts'

/** Everything that has a name in the OpenAPI document. */
export const namedSchemas = {
  ...sharedSchemas,
  StartSessions: sessionOptionsSchema,
  StartedSessions: sessions.startedSessionsSchema,
  SessionSummary: sessions.sessionSummarySchema,
  Session: sessions.sessionViewSchema,
  SessionList: sessions.sessionListSchema,
  Reward: sessions.rewardSchema,
  RewardedSession: sessions.rewardedSessionSchema,
  OpenAiModel: wire.openAiModelSchema,
  OpenAiModels: wire.openAiModelsSchema,
  AnthropicModel: wire.anthropicModelSchema,
  AnthropicModels: wire.anthropicModelsSchema,
  ChatRequest: wire.chatRequestSchema,
  ChatReply: wire.chatReplySchema,
  ResponsesRequest: wire.responsesRequestSchema,
  ResponsesReply: wire.responsesReplySchema,
  MessagesRequest: wire.messagesRequestSchema,
  MessagesReply: wire.messagesReplySchema,
  ResponsesCountRequest: wire.responsesCountRequestSchema,
  ResponsesCount: wire.responsesCountSchema,
  MessagesCountRequest: wire.messagesCountRequestSchema,
  MessagesCount: wire.messagesCountSchema,
  GenerateRequest: wire.generateRequestSchema,
  GenerateReply: wire.generateReplySchema,
  SglangError: wire.sglangErrorSchema,
  OpenAiError: wire.openAiErrorSchema,
  AnthropicError: wire.anthropicErrorSchema,
} as const satisfies Record<string, z.ZodType>

export type SchemaName = keyof typeof namedSchemas

/** `session`: that session's key will do. `manager`: the session's key will do if the session is self-managed. */
type GatewayKey = 'session' | 'manager' | 'admin'

export type GatewayOperation = Operation<SchemaName, GatewayKey>

const management: readonly GatewayOperation[] = [
  {
    method: 'GET',
    path: '/',
    summary: 'The same as /health: some clients ask their base URL for a sign of life.',
    key: 'nobody',
    replies: { 200: ['Health'] },
  },
  {
    method: 'GET',
    path: '/health',
    summary: 'Whether the process lives.',
    key: 'nobody',
    replies: { 200: ['Health'] },
  },
  {
    method: 'GET',
    path: '/ready',
    summary:
      'Whether a request that is sent now would be answered: a backend is reachable and not overloaded, the store works, no drain.',
    key: 'nobody',
    replies: { 200: ['Ready'], 503: ['NotReady'] },
  },
  {
    method: 'GET',
    path: '/metrics',
    summary: 'Prometheus text.',
    key: 'admin',
    replies: { 200: { types: ['text/plain'] } },
    errors: ['Error'],
  },
  {
    method: 'GET',
    path: '/openapi.json',
    summary: 'This document.',
    key: 'session',
    replies: { 200: { types: ['application/json'] } },
    errors: ['Error'],
  },
  {
    method: 'POST',
    path: '/v1/sessions',
    summary: 'Starts sessions: one, or a group of them.',
    key: 'admin',
    body: 'StartSessions',
    isBodyOptional: true,
    replies: { 201: ['StartedSessions'] },
    errors: ['Error'],
  },
  {
    method: 'GET',
    path: '/v1/sessions',
    summary: 'The sessions of the tenant, in the order they were started.',
    key: 'admin',
    query: sessions.sessionQuerySchema,
    replies: { 200: ['SessionList'] },
    errors: ['Error'],
  },
  {
    method: 'GET',
    path: '/v1/sessions/{id}',
    summary: 'One session: its state, what it used and what is left.',
    key: 'session',
    replies: { 200: ['Session'] },
    errors: ['Error'],
  },
  {
    method: 'POST',
    path: '/v1/sessions/{id}/end',
    summary: 'Ends a session. Nothing is added to it any more.',
    key: 'manager',
    replies: { 200: ['Session'] },
    errors: ['Error'],
  },
  {
    method: 'POST',
    path: '/v1/sessions/{id}/rewards',
    summary: 'Sets the reward of a session, or of one reply in it. The last one said counts.',
    key: 'manager',
    body: 'Reward',
    replies: { 200: ['RewardedSession'] },
    errors: ['Error'],
  },
  {
    method: 'GET',
    path: '/v1/export',
    summary: 'What was said, as rows for training: of one session, of one group, or of all.',
    key: 'admin',
    query: sessions.exportQuerySchema,
    replies: { 200: { types: ['application/x-ndjson', 'application/octet-stream'] } },
    errors: ['Error'],
  },
]

/** Below the root and below each session. */
const forModels: readonly GatewayOperation[] = [
  {
    method: 'GET',
    path: '/v1/models',
    summary: 'The models, in Anthropic’s shape if `anthropic-version` is sent.',
    key: 'session',
    replies: { 200: ['OpenAiModels', 'AnthropicModels'] },
    errors: ['OpenAiError', 'AnthropicError'],
  },
  {
    method: 'GET',
    path: '/v1/models/{model}',
    summary: 'One of them.',
    key: 'session',
    replies: { 200: ['OpenAiModel', 'AnthropicModel'] },
    errors: ['OpenAiError', 'AnthropicError'],
  },
  {
    method: 'POST',
    path: '/v1/chat/completions',
    summary: 'OpenAI’s Chat Completions.',
    key: 'session',
    body: 'ChatRequest',
    isStreamed: true,
    replies: { 200: ['ChatReply'] },
    errors: ['OpenAiError'],
  },
  {
    method: 'POST',
    path: '/v1/responses',
    summary: 'OpenAI’s Responses.',
    key: 'session',
    body: 'ResponsesRequest',
    isStreamed: true,
    replies: { 200: ['ResponsesReply'] },
    errors: ['OpenAiError'],
  },
  {
    method: 'POST',
    path: '/v1/messages',
    summary: 'Anthropic’s Messages.',
    key: 'session',
    body: 'MessagesRequest',
    isStreamed: true,
    replies: { 200: ['MessagesReply'] },
    errors: ['AnthropicError'],
  },
  {
    method: 'POST',
    path: '/v1/responses/input_tokens',
    summary: 'How many tokens a request of OpenAI’s Responses would have; nothing is sampled.',
    key: 'session',
    body: 'ResponsesCountRequest',
    replies: { 200: ['ResponsesCount'] },
    errors: ['OpenAiError'],
  },
  {
    method: 'POST',
    path: '/v1/messages/count_tokens',
    summary: 'How many tokens a request of Anthropic’s Messages would have; nothing is sampled.',
    key: 'session',
    body: 'MessagesCountRequest',
    replies: { 200: ['MessagesCount'] },
    errors: ['AnthropicError'],
  },
  {
    method: 'POST',
    path: '/generate',
    summary: 'SGLang’s own API, of a model that SGLang serves.',
    key: 'session',
    body: 'GenerateRequest',
    isStreamed: true,
    replies: { 200: ['GenerateReply'] },
    errors: ['SglangError'],
  },
]

/** Every route of a gateway. */
export const gatewayOperations: readonly GatewayOperation[] = [...management, ...forModels, ...forModels.map(inSession)]

function inSession(operation: GatewayOperation): GatewayOperation {
  const { path, summary } = operation
  return { ...operation, path: `/sessions/{id}${path}`, summary: `${summary} In this session.` }
}

export const gatewayApi: ApiDescription<SchemaName, GatewayKey> = {
  title: 'Millrace gateway',
  description: 'Serves models to agents, and records what they say.',
  operations: gatewayOperations,
  schemas: namedSchemas,
  keys: {
    admin: 'Needs an admin key.',
    manager: 'Needs an admin key; a session’s own will do if it was started with selfManaged: true.',
    session: 'A session’s own key will do.',
  },
  securitySchemes: {
    bearer: { type: 'http', scheme: 'bearer' },
    apiKey: { type: 'apiKey', in: 'header', name: 'x-api-key' },
  },
  parameters: { id: 'The session.', model: 'As the list names it.' },
}
