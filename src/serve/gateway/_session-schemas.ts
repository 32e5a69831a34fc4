import { z } from 'zod'
import { sessionLimitsSchema, type SessionSummary, type SessionView } from '../../gateway/index.ts'
import { closedObject, jsonObjectSchema } from '../../schema/index.ts'

const maxPage = 1_000
const defaultPage = 100

/** Bodies, queries and replies of the API of sessions: what routes check, what OpenAPI says, what tests hold replies to. */

export const startedSessionsSchema = z.object({
  groupId: z.string(),
  sessions: z.array(
    z.object({
      id: z.string(),
      key: z.string().describe('Shown once: only its digest is kept.'),
      url: z.string().describe('A base URL: models are below it, at /v1/…'),
    }),
  ),
})

const summaryFields = {
  id: z.string(),
  groupId: z.string(),
  tenant: z.string(),
  taskId: z.string().nullable(),
  state: z.enum(['open', 'ended', 'expired']),
  startedAt: z.number().describe('Milliseconds since 1970, as all times.'),
  endedAt: z.number().nullable(),
  ttlSeconds: z.number(),
  metadata: jsonObjectSchema.exactOptional().describe('Only to an admin.'),
  limits: sessionLimitsSchema,
  selfManaged: z.boolean().describe('Whether its own key may reward and end it.'),
  damage: z
    .string()
    .exactOptional()
    .describe(
      'What of the record cannot be read, if anything: numbers are of what can be. A list says it where somebody came upon it.',
    ),
}

const left = z.number().nullable()

export const sessionSummarySchema: z.ZodType<SessionSummary> = z.strictObject(summaryFields)

const viewFields = {
  ...summaryFields,
  used: z.strictObject({
    requests: z.number(),
    tokens: z.number(),
    cost: z.number().nullable().describe('US dollars. Null if one of its replies has no known price.'),
    concurrent: z.number(),
  }),
  remaining: z
    .strictObject({ requests: left, tokens: left, cost: left, concurrent: left })
    .describe('Null where there is no limit.'),
  interactions: z.number().describe('Complete replies.'),
  tokens: z
    .enum(['all', 'some', 'none'])
    .nullable()
    .describe(
      'How many of them have prompt ids, ids and log-probabilities, and can be trained on; null if there is none.',
    ),
  discarded: z.number().describe('Samples that were lost.'),
  reward: z.number().nullable(),
  alarms: z
    .array(z.enum(['nothing_captured', 'tokens_missing', 'record_damaged']))
    .describe('What makes the record useless, if anything.'),
}

export const sessionViewSchema: z.ZodType<SessionView> = z.strictObject(viewFields)

export const rewardedSessionSchema = z.strictObject({
  ...viewFields,
  rewarded: z
    .strictObject({
      node: z.number().nullable().describe('The reply, by its number in the session; null for the session as a whole.'),
      reward: z.number(),
    })
    .describe('What this request has set. `reward` beside it is that of the session as a whole.'),
})

export const sessionListSchema = z.strictObject({
  sessions: z.array(sessionSummarySchema),
  unreadable: z
    .array(z.string())
    .exactOptional()
    .describe(
      'The ids of those whose record is damaged at its start, if there are any. One by one they can be looked at and ended.',
    ),
  after: z.string().nullable().describe('Give it as `after` for what follows; null if nothing does.'),
})

export const sessionQuerySchema = closedObject({
  group: z.string().exactOptional().describe('Those of this group only.'),
  state: z.enum(['open', 'ended']).exactOptional().describe('Those that are so. Expired ones have ended.'),
  after: z.string().exactOptional().describe('The `after` of the list before.'),
  limit: z.coerce.number().int().min(1).max(maxPage).default(defaultPage).describe('How many at most.'),
})

export const rewardSchema = closedObject({
  reward: z.number().describe('From -1e30 to 1e30.'),
  interactionId: z
    .string()
    .exactOptional()
    .describe('The id of a reply. Without it or `node`: the session as a whole.'),
  node: z.number().int().min(0).exactOptional().describe('The number of a reply in its session, as exports show it.'),
})

export const exportQuerySchema = closedObject({
  session: z.string().exactOptional().describe('This session only.'),
  group: z.string().exactOptional().describe('The sessions of this group only.'),
  format: z.enum(['jsonl', 'binary']).default('jsonl').describe('JSON lines, or frames with typed arrays.'),
  rows: z
    .enum(['interactions', 'merged'])
    .default('interactions')
    .describe('A row for each reply, or for each branch, with a mask, to train on.'),
  mainTree: z
    .enum(['longest', 'first', 'all'])
    .exactOptional()
    .describe(
      "Which tree of messages gets a session's reward: replies outside of it are side calls. longest if not given.",
    ),
  trees: z
    .enum(['all', 'main'])
    .exactOptional()
    .describe('Also the rows of side calls, or only those of the main tree. all if not given.'),
  discount: z.coerce
    .number()
    .min(0)
    .max(1)
    .exactOptional()
    .describe('How much of the return of a reply goes to the one before it. 1 if not given.'),
  include: z.enum(['discarded']).exactOptional().describe('Also samples that were lost.'),
  skipWithoutTokens: z
    .enum(['true', 'false'])
    .transform((text) => text === 'true')
    .exactOptional()
    .describe('Leaves replies without tokens out of training rows, instead of refusing the export.'),
})
