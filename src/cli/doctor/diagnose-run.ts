import { z } from 'zod'
import { loopBlockedEvent } from '../../rollout/index.ts'
import { outcomeNames, outcomes, type Outcome } from '../../schema/index.ts'
import type { RunReader, StoredEvent } from '../../store/index.ts'

/** A function of the environment that blocked an event loop, and with it all rollouts there. */
export interface BlockingFunction {
  readonly blockedBy: string
  /** How often it was recorded. A reward is recorded again only when it gets much worse. */
  readonly times: number
  readonly worstMs: number
  readonly workers: readonly number[]
  readonly lastAt: number
}

/** How a model's concurrency limit moved. */
export interface LimitHistory {
  readonly model: string
  readonly cuts: number
  readonly lowest: number
  /** How often requests were held back because the backend was overloaded or gone. */
  readonly parked: number
  readonly lastWhy: string
}

/** A tool server that was open and then could not be reached. */
export interface ServerOutages {
  readonly server: string
  /** How often it went away, over all workers: each finds out for itself. */
  readonly times: number
  readonly longestMs: number
  /** Whether it was back after the last time. */
  readonly isBack: boolean
  readonly lastWhy: string
}

export interface RunDiagnosis {
  readonly ended: number
  /** The worst function first. */
  readonly blocked: readonly BlockingFunction[]
  readonly limits: readonly LimitHistory[]
  readonly servers: readonly ServerOutages[]
  /** The outcomes that were not caused by the policy. */
  readonly outcomes: Readonly<Partial<Record<Outcome, number>>>
  /** Attempts that were abandoned and started over. */
  readonly abandoned: { readonly attempts: number; readonly lastWhy?: string }
}

/** Outcomes that a person asked for: they are no faults. */
const intended: ReadonlySet<Outcome> = new Set(['cancelled', 'stale'])

/** Reads from a run's records what held it up. */
export function diagnoseRun(reader: RunReader): RunDiagnosis {
  const { ended, outcomes: counts } = reader.counts()
  const faults: Partial<Record<Outcome, number>> = {}
  for (const outcome of outcomeNames) {
    const count = counts[outcome]
    if (count !== undefined && !outcomes[outcome].scored && !intended.has(outcome)) faults[outcome] = count
  }
  return {
    ended,
    blocked: blockingFunctions(reader.events(loopBlockedEvent)),
    limits: limitHistories(reader.events('limit-change')),
    servers: serverOutages(reader.events('mcp.away'), reader.events('mcp.back')),
    outcomes: faults,
    abandoned: abandonedAttempts(reader.events('attempt-abandoned')),
  }
}

// Records may come from another version: those that do not fit the schema are skipped.
const blockedSchema = z.object({
  worker: z.number().nullish(),
  lagMs: z.number(),
  blockedBy: z.string().optional(),
})

function blockingFunctions(events: Iterable<StoredEvent>): BlockingFunction[] {
  const functions = new Map<string, { blocked: BlockingFunction; workers: Set<number> }>()
  for (const { at, data } of events) {
    const parsed = blockedSchema.safeParse(data)
    if (!parsed.success) continue
    const { worker, lagMs, blockedBy = 'something that could not be named' } = parsed.data
    // The line differs from one sample to the next, but the function is the same.
    const key = blockedBy.replace(/:\d+\)$/, ')')
    const known = functions.get(key)
    const workers = known?.workers ?? new Set<number>()
    if (worker !== null && worker !== undefined) workers.add(worker)
    const times = (known?.blocked.times ?? 0) + 1
    const worstMs = Math.max(known?.blocked.worstMs ?? 0, lagMs)
    functions.set(key, { blocked: { blockedBy, times, worstMs, workers: [...workers], lastAt: at }, workers })
  }
  return Array.from(functions.values(), ({ blocked }) => blocked).sort((one, other) => other.worstMs - one.worstMs)
}

const limitSchema = z.object({
  model: z.string(),
  kind: z.enum(['concurrency', 'parked', 'released']),
  from: z.number(),
  to: z.number(),
  why: z.string(),
})

function limitHistories(events: Iterable<StoredEvent>): LimitHistory[] {
  const models = new Map<string, LimitHistory>()
  for (const { data } of events) {
    const parsed = limitSchema.safeParse(data)
    if (!parsed.success) continue
    const { model, kind, from, to, why } = parsed.data
    const isCut = kind === 'concurrency' && to < from
    const isParked = kind === 'parked'
    const { cuts = 0, lowest = from, parked = 0, lastWhy = why } = models.get(model) ?? {}
    models.set(model, {
      model,
      cuts: cuts + (isCut ? 1 : 0),
      lowest: kind === 'concurrency' ? Math.min(lowest, from, to) : lowest,
      parked: parked + (isParked ? 1 : 0),
      lastWhy: isCut || isParked ? why : lastWhy,
    })
  }
  return [...models.values()]
}

const awaySchema = z.object({ server: z.string(), cause: z.string() })
const backSchema = z.object({ server: z.string(), ms: z.number() })

function serverOutages(away: Iterable<StoredEvent>, back: Iterable<StoredEvent>): ServerOutages[] {
  const servers = new Map<string, ServerOutages & { readonly returns: number }>()
  for (const { data } of away) {
    const parsed = awaySchema.safeParse(data)
    if (!parsed.success) continue
    const { server, cause } = parsed.data
    const times = (servers.get(server)?.times ?? 0) + 1
    servers.set(server, { server, times, longestMs: 0, isBack: false, lastWhy: cause, returns: 0 })
  }
  for (const { data } of back) {
    const parsed = backSchema.safeParse(data)
    const known = parsed.success ? servers.get(parsed.data.server) : undefined
    if (!parsed.success || !known) continue
    const returns = known.returns + 1
    const longestMs = Math.max(known.longestMs, parsed.data.ms)
    servers.set(known.server, { ...known, longestMs, returns, isBack: returns === known.times })
  }
  return Array.from(servers.values(), ({ returns: _returns, ...outages }) => outages)
}

const abandonedSchema = z.object({ why: z.string() })

function abandonedAttempts(events: Iterable<StoredEvent>): RunDiagnosis['abandoned'] {
  let attempts = 0
  let lastWhy: string | undefined
  for (const { data } of events) {
    attempts += 1
    const parsed = abandonedSchema.safeParse(data)
    if (parsed.success) lastWhy = parsed.data.why
  }
  return { attempts, ...(lastWhy !== undefined && { lastWhy }) }
}
