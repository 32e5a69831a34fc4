import { z } from 'zod'
import { errorCodes, type ErrorCode } from '../../errors/index.ts'
import {
  jsonSchema,
  messageSchema,
  outcomeNames,
  usageSchema,
  type Outcome,
  type RolloutRecord,
} from '../../schema/index.ts'
import { namedSchemas, type ApiInfo } from '../http/openapi.ts'
import { rolloutStates } from '../requests/known-request.ts'

const count = z.int().min(0)
const state = z.enum(rolloutStates)
const outcome = z.enum(outcomeNames)
const task = z.object({ index: count, id: z.string() })
const at = z.number().describe('Milliseconds since 1970, like all times.')

/** A record may get fields in later versions, so this is not strict. */
export const recordSchema: z.ZodType<RolloutRecord> = z
  .object({
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
    unscored: z.literal(true).exactOptional().describe('It was requested with `scored: false`.'),
    answer: z.string().nullable(),
    messages: z.array(messageSchema),
    promptLength: count.exactOptional(),
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
  .register(namedSchemas, { id: 'Rollout' })

/** What a listing shows of an ended rollout. */
const headSchema = z.strictObject({
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

export type RolloutHead = z.infer<typeof headSchema>

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

export const replies = {
  accepted: z
    .strictObject({ request: z.string(), firstTask: count, tasks: count, attempts: count })
    .register(namedSchemas, { id: 'AcceptedRequest' }),
  rolloutOrState: z
    .union([recordSchema, z.strictObject({ id: z.string(), state }).register(namedSchemas, { id: 'RolloutState' })])
    .register(namedSchemas, { id: 'RolloutOrState' }),
  rolloutList: z
    .strictObject({
      rollouts: z.array(
        z.strictObject({ id: z.string(), request: z.string(), state, head: headSchema.exactOptional() }),
      ),
      cursor,
    })
    .register(namedSchemas, { id: 'RolloutList' }),
  cancelledRollout: z
    .strictObject({ id: z.string(), state, cancelling: z.boolean() })
    .register(namedSchemas, { id: 'CancelledRollout' }),
  request: z
    .strictObject({ ...requestFields, rollouts: z.array(z.strictObject({ id: z.string(), state })) })
    .register(namedSchemas, { id: 'Request' }),
  requestList: z
    .strictObject({ requests: z.array(z.strictObject(requestFields)), cursor })
    .register(namedSchemas, { id: 'RequestList' }),
  cancelledRequest: z
    .strictObject({ id: z.string(), cancelling: count.describe('How many had not ended.') })
    .register(namedSchemas, { id: 'CancelledRequest' }),
  workers: z
    .strictObject({
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
    })
    .register(namedSchemas, { id: 'Workers' }),
}

export const lines = 'application/x-ndjson'

export const key = 'Needs the key of the server, if it has one.'

export const serveInfo: ApiInfo = {
  title: 'Millrace serve',
  description: 'Runs rollouts of one environment or several on request.',
  securitySchemes: { bearer: { type: 'http', scheme: 'bearer' } },
  parameters: { id: 'The id of the rollout or request.', agent: 'The name of a served environment.' },
}
