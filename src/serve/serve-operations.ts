import { z } from 'zod'
import { errorCodes, type ErrorCode } from '../errors/index.ts'
import {
  jsonSchema,
  messageSchema,
  outcomeNames,
  usageSchema,
  type Outcome,
  type RolloutRecord,
} from '../schema/index.ts'
import { sharedSchemas, type ApiDescription, type Operation } from './_openapi.ts'
import { rolloutBodySchema } from './_request-body.ts'
import { requestListQuerySchema, requestQuerySchema } from './_request-routes.ts'
import { rolloutListQuerySchema, rolloutQuerySchema } from './_rollout-routes.ts'
import { resizeSchema } from './_worker-routes.ts'
import type { RolloutHead } from './codec-messages.ts'
import { rolloutStates } from './known-request.ts'

const count = z.int().min(0)
const state = z.enum(rolloutStates)
const outcome = z.enum(outcomeNames)
const task = z.object({ index: count, id: z.string() })
const at = z.number().describe('Milliseconds since 1970, as all times.')

/** A record may get fields in later versions, so this is not strict. */
const recordSchema: z.ZodType<RolloutRecord> = z.object({
  id: z.string(),
  environment: z.string(),
  model: z.string(),
  task,
  sample: count,
  attempt: count,
  outcome,
  truncated: z.boolean(),
  agentOutcome: outcome.exactOptional(),
  error: z
    .object({
      code: z.enum(Object.keys(errorCodes) as ErrorCode[]),
      message: z.string(),
      data: z.record(z.string(), z.union([z.string(), z.number(), z.boolean(), z.null()])).exactOptional(),
    })
    .exactOptional(),
  cutOffIn: z.string().exactOptional(),
  reward: z.number().nullable(),
  rewards: z.record(z.string(), z.object({ score: z.number(), weight: z.number() })),
  metrics: z.record(z.string(), z.number()),
  voided: z.literal(true).exactOptional(),
  answer: z.string().nullable(),
  messages: z.array(messageSchema),
  turns: count,
  toolCalls: count,
  toolErrors: count,
  toolRepairs: count.exactOptional(),
  missingServers: z.array(z.object({ server: z.string(), cause: z.string() })).exactOptional(),
  children: count,
  usage: usageSchema,
  judgeUsage: usageSchema,
  judgeModels: z.array(z.string()).exactOptional(),
  cost: z.number().nullable().describe('US dollars. Null if a price is unknown.'),
  timing: z.object({
    startedAt: at,
    wallMs: z.number(),
    workingMs: z.number(),
    waitMs: z.number(),
    modelMs: z.number(),
    toolMs: z.number(),
    rewardMs: z.number(),
  }),
  info: z.record(z.string(), jsonSchema).exactOptional(),
  nodes: z
    .array(z.looseObject({ seq: count, parent: count.nullable() }))
    .exactOptional()
    .describe('The messages with their tokens, if `include` asks for them.'),
})

const headSchema: z.ZodType<RolloutHead> = z.strictObject({
  id: z.string(),
  task,
  sample: count,
  attempt: count,
  outcome,
  reward: z.number().nullable(),
  turns: count,
  startedAt: at,
  wallMs: z.number(),
})

const cursor = z
  .string()
  .exactOptional()
  .describe('Send it as `cursor` for the next page; absent on the last page. A page that is not the last may be empty.')

const requestFields = {
  id: z.string(),
  at,
  firstTask: count.describe('The index of its first task in the run.'),
  tasks: count,
  attempts: count,
  detached: z.boolean(),
  state: state.describe(
    '`queued` until its first rollout starts, `ended` when all rollouts have ended, `running` in between.',
  ),
  states: z.strictObject({ queued: count, running: count, ended: count }).describe('Rollouts by state.'),
  outcomes: z.partialRecord(outcome, count).describe('Ended rollouts by outcome.') satisfies z.ZodType<
    Partial<Record<Outcome, number>>
  >,
}

/** Everything that has a name in the OpenAPI document. */
export const serveSchemas = {
  ...sharedSchemas,
  RolloutRequest: rolloutBodySchema,
  AcceptedRequest: z.strictObject({ request: z.string(), firstTask: count, tasks: count, attempts: count }),
  Rollout: recordSchema,
  RolloutState: z.strictObject({ id: z.string(), state }),
  RolloutList: z.strictObject({
    rollouts: z.array(z.strictObject({ id: z.string(), request: z.string(), state, head: headSchema.exactOptional() })),
    cursor,
  }),
  CancelledRollout: z.strictObject({ id: z.string(), state, cancelling: z.boolean() }),
  Request: z.strictObject({ ...requestFields, rollouts: z.array(z.strictObject({ id: z.string(), state })) }),
  RequestList: z.strictObject({ requests: z.array(z.strictObject(requestFields)), cursor }),
  CancelledRequest: z.strictObject({ id: z.string(), cancelling: count.describe('How many had not ended.') }),
  ResizeWorkers: resizeSchema,
  Workers: z.strictObject({
    workers: z.array(
      z.strictObject({
        id: count,
        kind: z.enum(['thread', 'process']),
        state: z.enum(['starting', 'ready', 'silent', 'draining', 'gone']),
        running: count,
        lag: z.object({ p99Ms: z.number(), maxMs: z.number(), meanMs: z.number(), utilization: z.number() }),
        memoryBytes: z.number(),
        restarts: count,
        blockedBy: z.string().exactOptional(),
      }),
    ),
  }),
} as const satisfies Record<string, z.ZodType>

type SchemaName = keyof typeof serveSchemas

const lines = 'application/x-ndjson'

/** Every route of `millrace serve`. */
const operations: readonly Operation<SchemaName, 'server'>[] = [
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
    summary: 'Whether a rollout that is sent now would run.',
    key: 'nobody',
    replies: { 200: ['Ready'], 503: ['NotReady'] },
  },
  {
    method: 'GET',
    path: '/metrics',
    summary: 'Prometheus text.',
    key: 'server',
    replies: { 200: { types: ['text/plain'] } },
    errors: ['Error'],
  },
  {
    method: 'GET',
    path: '/openapi.json',
    summary: 'This document.',
    key: 'server',
    replies: { 200: { types: ['application/json'] } },
    errors: ['Error'],
  },
  {
    method: 'POST',
    path: '/v1/rollouts',
    summary:
      'Runs rollouts of one task or many. One rollout is answered as JSON, several as a line of JSON each, as they end.',
    key: 'server',
    body: 'RolloutRequest',
    replies: { 200: { json: ['Rollout'], types: [lines] }, 202: ['AcceptedRequest'] },
    errors: ['Error'],
  },
  {
    method: 'GET',
    path: '/v1/rollouts',
    summary: 'The rollouts, newest first.',
    key: 'server',
    query: rolloutListQuerySchema,
    replies: { 200: ['RolloutList'] },
    errors: ['Error'],
  },
  {
    method: 'GET',
    path: '/v1/rollouts/{id}',
    summary: 'One rollout: its state, or its record once it has ended.',
    key: 'server',
    query: rolloutQuerySchema,
    replies: { 200: ['Rollout', 'RolloutState'] },
    errors: ['Error'],
  },
  {
    method: 'DELETE',
    path: '/v1/rollouts/{id}',
    summary: 'Cancels a rollout.',
    key: 'server',
    replies: { 200: ['CancelledRollout'], 202: ['CancelledRollout'] },
    errors: ['Error'],
  },
  {
    method: 'GET',
    path: '/v1/requests',
    summary: 'The requests, newest first, with the number of their rollouts by state and outcome.',
    key: 'server',
    query: requestListQuerySchema,
    replies: { 200: ['RequestList'] },
    errors: ['Error'],
  },
  {
    method: 'GET',
    path: '/v1/requests/{id}',
    summary: 'One request with the state of its rollouts; its results as lines if `accept` asks for them.',
    key: 'server',
    query: requestQuerySchema,
    replies: { 200: { json: ['Request'], types: [lines] } },
    errors: ['Error'],
  },
  {
    method: 'DELETE',
    path: '/v1/requests/{id}',
    summary: 'Cancels the rollouts of a request that have not ended.',
    key: 'server',
    replies: { 200: ['CancelledRequest'], 202: ['CancelledRequest'] },
    errors: ['Error'],
  },
  {
    method: 'GET',
    path: '/v1/workers',
    summary: 'The workers.',
    key: 'server',
    replies: { 200: ['Workers'] },
    errors: ['Error'],
  },
  {
    method: 'PUT',
    path: '/v1/workers',
    summary: 'Changes the number of workers.',
    key: 'server',
    body: 'ResizeWorkers',
    replies: { 200: ['Workers'] },
    errors: ['Error'],
  },
  {
    method: 'POST',
    path: '/v1/workers/restart',
    summary: 'Replaces each worker with a fresh one, one after another.',
    key: 'server',
    replies: { 200: ['Workers'] },
    errors: ['Error'],
  },
]

export const serveApi: ApiDescription<SchemaName, 'server'> = {
  title: 'Millrace serve',
  description: 'Runs rollouts of one environment on request.',
  operations,
  schemas: serveSchemas,
  keys: { server: 'Needs the key of the server, if it has one.' },
  securitySchemes: { bearer: { type: 'http', scheme: 'bearer' } },
  parameters: { id: 'The id of the rollout or request.' },
}
