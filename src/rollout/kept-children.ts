import { z } from 'zod'
import { usageSchema, type Json, type Usage } from '../schema/index.ts'
import type { BareRecord } from '../store/index.ts'
import { turnOf } from './child-id.ts'
import type { RolloutJob } from './job.ts'

/** What a child had used that does not run again, since the tool that asked for it is answered from the recording. */
export interface KeptChild {
  /** Its own, and those of all below it. */
  readonly turns: number
  readonly usage: Usage
  readonly judgeUsage: Usage
  readonly cost: number | null
  readonly toolCalls: number
  readonly toolErrors: number
  readonly toolRepairs: number
  /** Below it. */
  readonly children: number
  readonly workingMs: number
}

/** By what a child's id adds to the rollout's. */
export type KeptChildren = Readonly<Record<string, KeptChild>>

/** The name of the event that keeps one whose conversation is another run's. */
export const keptChildEvent = 'child-kept'

const eventSchema = z.object({
  child: z.string(),
  turns: z.number(),
  usage: usageSchema,
  judgeUsage: usageSchema,
  cost: z.number().nullable(),
  toolCalls: z.number(),
  toolErrors: z.number(),
  toolRepairs: z.number(),
  children: z.number(),
  // Some were recorded without it.
  workingMs: z.number().default(0),
})

/** A recorded event as a child and what it is known by; undefined if it is none. */
export function keptChildOf(data: Json): readonly [key: string, child: KeptChild] | undefined {
  const parsed = eventSchema.safeParse(data)
  if (!parsed.success) return undefined
  const { child: key, ...child } = parsed.data
  return [key, child]
}

/** The children of a rollout that have ended, those that it took over itself (`earlier`) among them. */
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

/** Without those that began, or whose uppermost parent did, after a turn of the rollout: what goes on from there has its own. */
export function keptUntil(children: KeptChildren, turn: number): KeptChildren {
  return Object.fromEntries(Object.entries(children).filter(([key]) => turnOf(key) <= turn))
}

/** Those that a session had begun in one place of it. Below them are others, which are in their figures. */
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
    cost: record.cost,
    toolCalls: record.toolCalls,
    toolErrors: record.toolErrors,
    toolRepairs: record.toolRepairs ?? 0,
    children: record.children,
    workingMs: record.timing.workingMs,
  }
}
