import { z } from 'zod'
import { sessionOptionsSchema, sessionSummarySchema, sessionViewSchema } from '../../gateway/index.ts'
import { closedObject } from '../../schema/index.ts'
import { namedSchemas, type ApiInfo } from '../http/openapi.ts'
import { pageSchemas } from '../http/routes.ts'

/** Bodies, queries and replies of the API of sessions: what routes check, and what OpenAPI says. */

export const startSessionsSchema = sessionOptionsSchema.register(namedSchemas, { id: 'StartSessions' })

export const startedSessionsSchema = z
  .object({
    groupId: z.string(),
    sessions: z.array(
      z.object({
        id: z.string(),
        key: z.string().describe('Shown once: only its digest is kept.'),
        url: z.string().describe('A base URL: models are below it, at /v1/…'),
      }),
    ),
  })
  .register(namedSchemas, { id: 'StartedSessions' })

export type StartedGroup = z.infer<typeof startedSessionsSchema>

sessionSummarySchema.register(namedSchemas, { id: 'SessionSummary' })
sessionViewSchema.register(namedSchemas, { id: 'Session' })

export const rewardedSessionSchema = sessionViewSchema
  .extend({
    rewarded: z
      .strictObject({
        node: z
          .number()
          .nullable()
          .describe('The reply, by its number in the session; null for the session as a whole.'),
        reward: z.number(),
      })
      .describe('The reward that this request has set. `reward` is the reward of the session as a whole.'),
  })
  .register(namedSchemas, { id: 'RewardedSession' })

export type RewardedSession = z.infer<typeof rewardedSessionSchema>

export const sessionListSchema = z
  .strictObject({
    sessions: z.array(sessionSummarySchema),
    unreadable: z
      .array(z.string())
      .exactOptional()
      .describe(
        'The ids of sessions whose record is damaged at its start, if there are any. Each can be shown and ended by its id.',
      ),
    after: z.string().nullable().describe('Give it as `after` to get the next page; null on the last page.'),
  })
  .register(namedSchemas, { id: 'SessionList' })

export const sessionQuerySchema = closedObject({
  group: z.string().exactOptional().describe('The sessions of this group only.'),
  state: z
    .enum(['open', 'ended'])
    .exactOptional()
    .describe('The sessions in this state only. Expired sessions count as ended.'),
  after: z.string().exactOptional().describe('The `after` of the previous page.'),
  limit: pageSchemas.limit,
})

export const rewardSchema = closedObject({
  reward: z.number().describe('From -1e30 to 1e30.'),
  interactionId: z
    .string()
    .exactOptional()
    .describe('The id of a reply. Without it or `node`: the session as a whole.'),
  node: z.number().int().min(0).exactOptional().describe('The number of a reply in its session, as exports show it.'),
}).register(namedSchemas, { id: 'Reward' })

export type RewardRequest = z.input<typeof rewardSchema>

export const keys = {
  admin: 'Needs an admin key.',
  manager: 'Needs an admin key; the session’s own key is accepted if the session was started with selfManaged: true.',
  session: 'A session’s own key is accepted.',
}

export const gatewayInfo: ApiInfo = {
  title: 'Millrace gateway',
  description: 'Serves models to agents, and records the conversations.',
  securitySchemes: {
    bearer: { type: 'http', scheme: 'bearer' },
    apiKey: { type: 'apiKey', in: 'header', name: 'x-api-key' },
  },
  parameters: {
    id: 'The session.',
    model: 'A name from the list of models.',
    key: 'The id of a key.',
    backend: 'The id of a backend, or its url; a slash in it is written as %2F.',
  },
}
