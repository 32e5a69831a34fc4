import { z } from 'zod'
import { loopBlockedEvent } from '../../../rollout/index.ts'
import { outcomeNames, outcomes, type Outcome } from '../../../schema/index.ts'
import type { RunReader, StoredEvent } from '../../../store/index.ts'

export type RunDiagnosis = ReturnType<typeof diagnoseRun>

/** Outcomes that a person asked for: they are no faults. */
const intended: ReadonlySet<Outcome> = new Set(['cancelled', 'stale'])

/** What held up a run, by its records. */
export function diagnoseRun(reader: RunReader) {
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

/** The data of events. Records may come from another version: those that do not fit the schema are skipped. */
function* dataOf<Data>(
  events: Iterable<StoredEvent>,
  schema: z.ZodType<Data>,
): Generator<Data & { readonly at: number }, void, void> {
  for (const { at, data } of events) {
    const parsed = schema.safeParse(data)
    if (parsed.success) yield { ...parsed.data, at }
  }
}

const blockedSchema = z.object({
  worker: z.number().nullish(),
  lagMs: z.number(),
  blockedBy: z.string().optional(),
})

/** The functions of the environment that blocked an event loop, and with it all rollouts there; the worst first. */
function blockingFunctions(events: Iterable<StoredEvent>) {
  const unnamed = 'an unknown function'
  // The line differs from one sample to the next, but the function is the same.
  const functions = Map.groupBy(dataOf(events, blockedSchema), ({ blockedBy = unnamed }) =>
    blockedBy.replace(/:\d+\)$/, ')'),
  )
  return Array.from(functions.values(), (blocks) => ({
    blockedBy: blocks.at(-1)?.blockedBy ?? unnamed,
    times: blocks.length,
    worstMs: blocks.reduce((worst, { lagMs }) => Math.max(worst, lagMs), 0),
    workers: [...new Set(blocks.flatMap(({ worker }) => worker ?? []))],
    lastAt: blocks.at(-1)?.at ?? 0,
  })).sort((one, other) => other.worstMs - one.worstMs)
}

const limitSchema = z.object({
  model: z.string(),
  kind: z.enum(['concurrency', 'parked', 'released']),
  from: z.number(),
  to: z.number(),
  why: z.string(),
})

/** How the concurrency limits of models moved, and how often requests were held back. */
function limitHistories(events: Iterable<StoredEvent>) {
  const models = Map.groupBy(dataOf(events, limitSchema), ({ model }) => model)
  return Array.from(models, ([model, changes]) => {
    const moves = changes.filter(({ kind }) => kind === 'concurrency')
    const parked = changes.filter(({ kind }) => kind === 'parked')
    const last = changes.findLast(({ kind, from, to }) => kind === 'parked' || (kind === 'concurrency' && to < from))
    return {
      model,
      cuts: moves.filter(({ from, to }) => to < from).length,
      lowest: moves.reduce((lowest, { from, to }) => Math.min(lowest, from, to), changes[0]?.from ?? 0),
      parked: parked.length,
      lastWhy: (last ?? changes[0])?.why ?? '',
    }
  })
}

const awaySchema = z.object({ server: z.string(), cause: z.string() })
const backSchema = z.object({ server: z.string(), ms: z.number() })

/** Tool servers that were open and then could not be reached. Each worker finds that out for itself. */
function serverOutages(away: Iterable<StoredEvent>, back: Iterable<StoredEvent>) {
  const returns = Map.groupBy(dataOf(back, backSchema), ({ server }) => server)
  const outages = Map.groupBy(dataOf(away, awaySchema), ({ server }) => server)
  return Array.from(outages, ([server, times]) => {
    const returned = returns.get(server) ?? []
    return {
      server,
      times: times.length,
      longestMs: returned.reduce((longest, { ms }) => Math.max(longest, ms), 0),
      isBack: returned.length === times.length,
      lastWhy: times.at(-1)?.cause ?? '',
    }
  })
}

const abandonedSchema = z.object({ why: z.string() })

function abandonedAttempts(events: Iterable<StoredEvent>): { readonly attempts: number; readonly lastWhy?: string } {
  const all = Array.from(events, ({ data }) => abandonedSchema.safeParse(data).data?.why)
  const lastWhy = all.findLast((why) => why !== undefined)
  return { attempts: all.length, ...(lastWhy !== undefined && { lastWhy }) }
}
