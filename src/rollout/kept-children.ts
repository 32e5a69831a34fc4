import { z } from 'zod'
import { usageSchema, type Json, type Usage } from '../schema/index.ts'
import type { BareRecord } from '../store/index.ts'
import { turnOf } from './child-id.ts'
import type { RolloutJob } from './job.ts'

/** What a child had used that does not run again, since the tool call that asked for it is answered from the recording. */
export interface KeptChild {
  /** The child's own turns, and those of all children below it. */
  readonly turns: number
  readonly usage: Usage
  readonly judgeUsage: Usage
  /** Left out if no judge was asked. */
  readonly judgeModels?: readonly string[]
  readonly cost: number | null
  readonly toolCalls: number
  readonly toolErrors: number
  readonly toolRepairs: number
  /** How many children are below it. */
  readonly children: number
  readonly workingMs: number
}

/** Kept children by what a child's id adds to the rollout's. */
export type KeptChildren = Readonly<Record<string, KeptChild>>

/** The name of the event that keeps a child whose conversation is in another run. */
export const keptChildEvent = 'child-kept'

const eventSchema = z.object({
  child: z.string(),
  turns: z.number(),
  usage: usageSchema,
  judgeUsage: usageSchema,
  judgeModels: z.array(z.string()).exactOptional(),
  cost: z.number().nullable(),
  toolCalls: z.number(),
  toolErrors: z.number(),
  toolRepairs: z.number(),
  children: z.number(),
  // Some events were recorded without this field.
  workingMs: z.number().default(0),
})

/** A recorded event as a child's key and figures; undefined if the event is no such child. */
export function keptChildOf(data: Json): readonly [key: string, child: KeptChild] | undefined {
  const parsed = eventSchema.safeParse(data)
  if (!parsed.success) return undefined
  const { child: key, ...child } = parsed.data
  return [key, child]
}

/** The children of a rollout that have ended, together with those that it took over itself (`earlier`). */
export function keptChildrenOf(rollout: string, ended: Iterable<BareRecord>, earlier: KeptChildren = {}): KeptChildren {
  const children = new Map<string, KeptChild>(Object.entries(earlier))
  for (const record of ended)
    if (record.id !== rollout) children.set(record.id.slice(rollout.length), figuresOf(record))
  const turns = new Map<string, number>()
  for (const [key, child] of children) {
    for (let end = key.length; end > 0; end = key.lastIndexOf('.', end - 1)) {
      const above = key.slice(0, end)
      turns.set(above, (turns.get(above) ?? 0) + child.turns)
    }
  }
  return Object.fromEntries(Array.from(children, ([key, child]) => [key, { ...child, turns: turns.get(key) ?? 0 }]))
}

/**
 * Leaves out children that began, or whose uppermost parent began, after the given turn: a rollout that goes on from there starts
 * its own.
 */
export function keptUntil(children: KeptChildren, turn: number): KeptChildren {
  return Object.fromEntries(Object.entries(children).filter(([key]) => turnOf(key) <= turn))
}

/** The children that a session had begun in one place. Children below those are not listed: they are counted in their figures. */
export function* keptUnder(
  { id, recorded, cassette }: RolloutJob,
  session: string,
  place: string,
): Generator<readonly [key: string, child: KeptChild], void, void> {
  const prefix = `${session.slice(id.length)}.${place}-`
  for (const children of [recorded?.children, cassette?.children]) {
    for (const [key, child] of Object.entries(children ?? {})) {
      if (key.startsWith(prefix) && !key.includes('.', prefix.length)) yield [key, child]
    }
  }
}

function figuresOf(record: BareRecord): KeptChild {
  return {
    turns: record.turns,
    usage: record.usage,
    judgeUsage: record.judgeUsage,
    ...(record.judgeModels && { judgeModels: record.judgeModels }),
    cost: record.cost,
    toolCalls: record.toolCalls,
    toolErrors: record.toolErrors,
    toolRepairs: record.toolRepairs ?? 0,
    children: record.children,
    workingMs: record.timing.workingMs,
  }
}
