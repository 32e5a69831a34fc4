import { z } from 'zod'
import type { MillraceError } from '../../errors/index.ts'
import { jsonObjectSchema } from '../../schema/index.ts'
import { isDamage, type SessionReader, type StoredSession } from '../../store/index.ts'
import { type Caller, SessionTally } from './session-memory.ts'
import { emptySessionData, type SessionData, sessionLimitsSchema, storedData } from './session-options.ts'

const left = z.number().nullable()

const summaryFields = {
  id: z.string(),
  groupId: z.string(),
  tenant: z.string(),
  taskId: z.string().nullable(),
  state: z.enum(['open', 'ended', 'expired']),
  startedAt: z.number().describe('Milliseconds since 1970, like all times.'),
  endedAt: z.number().nullable(),
  ttlSeconds: z.number(),
  metadata: jsonObjectSchema.exactOptional().describe('Shown only to an admin.'),
  limits: sessionLimitsSchema,
  selfManaged: z.boolean().describe('Whether the session’s own key may reward and end it.'),
  damage: z
    .string()
    .exactOptional()
    .describe(
      'The damage of the record, if any. Figures cover the readable part only. Lists include it once the damage has been found.',
    ),
}

/** A session as lists show it. */
export const sessionSummarySchema = z.strictObject(summaryFields)

/** A session with all its figures. */
export const sessionViewSchema = sessionSummarySchema.extend({
  used: z.strictObject({
    requests: z.number(),
    tokens: z.number(),
    cost: z.number().nullable().describe('US dollars. Null if a reply has no known price.'),
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
      'How many replies have prompt ids, ids and log-probabilities, and can be trained on; null if there is no reply.',
    ),
  discarded: z.number().describe('Lost samples.'),
  reward: z.number().nullable(),
  alarms: z
    .array(z.enum(['nothing_captured', 'tokens_missing', 'record_damaged']))
    .describe('The problems that make the record unusable, if any.'),
})

export type SessionSummary = z.infer<typeof sessionSummarySchema>
export type SessionView = z.infer<typeof sessionViewSchema>
export type SessionState = SessionSummary['state']
export type SessionAlarm = SessionView['alarms'][number]
export type SessionTokens = NonNullable<SessionView['tokens']>

/** What an open session and a stored one have in common. */
type SessionFacts = Pick<StoredSession, 'id' | 'group' | 'tenant' | 'startedAt'> & { readonly data: SessionData }

export function summaryOf(facts: SessionFacts, end?: StoredSession['end']): SessionSummary {
  const { id, group, tenant, startedAt, data } = facts
  const { taskId = null, ttlSeconds, metadata, limits, selfManaged } = data
  return {
    id,
    groupId: group,
    tenant,
    taskId,
    state: end?.why ?? 'open',
    startedAt,
    endedAt: end?.at ?? null,
    ttlSeconds,
    metadata,
    limits,
    selfManaged,
  }
}

/** The view without what the caller may not see. */
export function viewFor(caller: Caller, view: SessionView): SessionView {
  if (caller.kind === 'admin') return view
  const { metadata: _hidden, ...seen } = view
  return seen
}

export function storedSummary(stored: StoredSession): SessionSummary {
  // Not spread, because `data` is a getter that reads the record each time.
  const { id, group, tenant, startedAt, end } = stored
  return summaryOf({ id, group, tenant, startedAt, data: storedData(stored) }, end)
}

/**
 * Like `storedSummary`, for a session that may be damaged. If its options are, the defaults are shown; `tally` has the
 * damage.
 */
export function readableSummary(stored: StoredSession, tally: SessionTally): SessionSummary {
  try {
    return storedSummary(stored)
  } catch (error) {
    if (!isDamage(error)) throw error
    tally.damage ??= error
    const { id, group, tenant, startedAt, end } = stored
    return summaryOf({ id, group, tenant, startedAt, data: emptySessionData }, end)
  }
}

export function withDamage(summary: SessionSummary, damage: MillraceError | undefined): SessionSummary {
  return damage ? { ...summary, damage: damage.rawMessage } : summary
}

export function viewOf(
  summary: SessionSummary,
  tally: SessionTally,
  { running, reward }: { readonly running: number; readonly reward: number | null },
): SessionView {
  const { maxRequests, maxTokens, maxCost, maxConcurrent } = summary.limits
  const { requests, tokens, cost, isCostPartial, interactions, discarded, damage } = tally
  return {
    ...withDamage(summary, damage),
    used: { requests, tokens, cost: isCostPartial ? null : cost, concurrent: running },
    remaining: {
      requests: leftOf(maxRequests, requests),
      tokens: leftOf(maxTokens, tokens),
      cost: leftOf(maxCost, cost),
      concurrent: leftOf(maxConcurrent, running),
    },
    interactions,
    tokens: tokensOf(tally),
    discarded,
    reward,
    alarms: alarmsOf(tally, summary.state !== 'open'),
  }
}

export function alarmsOf({ interactions, tokensMissing, damage }: SessionTally, hasEnded: boolean): SessionAlarm[] {
  const alarms: SessionAlarm[] = []
  if (damage) alarms.push('record_damaged')
  // In a damaged record, replies may have been captured that cannot be read.
  else if (hasEnded && interactions === 0) alarms.push('nothing_captured')
  if (tokensMissing > 0) alarms.push('tokens_missing')
  return alarms
}

function tokensOf({ interactions, withoutTokens }: SessionTally): SessionTokens | null {
  if (interactions === 0) return null
  if (withoutTokens === 0) return 'all'
  return withoutTokens < interactions ? 'some' : 'none'
}

function leftOf(limit: number | undefined, used: number): number | null {
  return limit === undefined ? null : Math.max(0, limit - used)
}

/** The view of a stored session, for readers of a run whose gateway does not run. */
export function storedView(reader: SessionReader, session: StoredSession): SessionView {
  const { id } = session
  const tally = new SessionTally()
  for (const node of reader.bareNodesOf(id)) tally.add(node)
  const reward = reader.rewardsOf(id).find(({ node }) => node === null)?.value ?? null
  return viewOf(storedSummary(session), tally, { running: 0, reward })
}
