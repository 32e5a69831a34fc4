import type { MillraceError } from '../../errors/index.ts'
import type { JsonObject } from '../../schema/index.ts'
import { isDamage, type StoredSession } from '../../store/index.ts'
import type { Caller } from '../caller.ts'
import { nothingSaid, storedData, type SessionData, type SessionLimits } from './session-options.ts'
import type { SessionTally } from './session-tally.ts'

/** Why a session's record is worthless: it has no complete reply, lacks tokens that were asked for, or is damaged. */
export type SessionAlarm = 'nothing_captured' | 'tokens_missing' | 'record_damaged'

/** How many of the complete replies have all that training takes: prompt ids, ids and log-probabilities. */
export type SessionTokens = 'all' | 'some' | 'none'

export type SessionState = 'open' | 'ended' | 'expired'

/** A session as lists show it. Times are in milliseconds since 1970. */
export interface SessionSummary {
  readonly id: string
  readonly groupId: string
  readonly tenant: string
  readonly taskId: string | null
  readonly state: SessionState
  readonly startedAt: number
  readonly endedAt: number | null
  readonly ttlSeconds: number
  /** Not shown to the session's own key: it may hold what the agent is not to know. */
  readonly metadata?: JsonObject
  readonly limits: SessionLimits
  /** Whether the session's own key may reward and end it. */
  readonly selfManaged: boolean
  /** Why part of the record cannot be read, if so. A list shows it only for sessions whose damage was come upon before. */
  readonly damage?: string
}

export interface SessionView extends SessionSummary {
  readonly used: {
    readonly requests: number
    readonly tokens: number
    /** Null if a reply has no known price: the cost of the others is not that of the session. */
    readonly cost: number | null
    readonly concurrent: number
  }
  /** What is left of each limit; null if there is no limit. */
  readonly remaining: {
    readonly requests: number | null
    readonly tokens: number | null
    readonly cost: number | null
    readonly concurrent: number | null
  }
  /** Complete replies. */
  readonly interactions: number
  /** How many of the complete replies can be trained on; null as long as there is none. */
  readonly tokens: SessionTokens | null
  /** Replies that were lost. */
  readonly discarded: number
  /** The reward of the session as a whole; null if there is none. */
  readonly reward: number | null
  readonly alarms: readonly SessionAlarm[]
}

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
export function seenBy(caller: Caller, view: SessionView): SessionView {
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
    return summaryOf({ id, group, tenant, startedAt, data: nothingSaid }, end)
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
