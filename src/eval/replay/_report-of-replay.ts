import type { KeptChild } from '../../rollout/index.ts'
import type { RolloutRecord } from '../../schema/index.ts'
import type { BareRecord } from '../../store/index.ts'
import { Comparison } from './comparison.ts'
import type { Recording } from './recording.ts'
import type { ReplayedSession } from './replay-journal.ts'
import type { ReplayReport } from './replay-report.ts'

/** What a replay came to. */
interface Replayed {
  readonly sessions: ReadonlyMap<string, ReplayedSession>
  /** Undefined if the replay did not reach its end: `why` says what kept it from that. */
  readonly record: RolloutRecord | undefined
  readonly why: string | undefined
}

/** The report of a rollout that was replayed, without hints. */
export function replayReport(recording: Recording, replayed: Replayed): ReplayReport {
  const { record, sessions } = recording
  const { why } = replayed
  const kept = Array.from(replayed.sessions.values(), (session) => [...session.kept]).flat()
  const { differences, omitted, first, messages } = compared(recording, replayed, kept)
  return {
    rollout: record.id,
    attempt: record.attempt,
    outcome: record.outcome,
    verdict: differences.length === 0 && why === undefined ? 'identical' : 'different',
    ...(why !== undefined && { why }),
    messages,
    children: {
      replayed: sessions.filter(({ id, parent }) => parent !== null && replayed.sessions.has(id)).length,
      kept: kept.reduce((sum, [, { children }]) => sum + 1 + children, 0),
    },
    differences,
    omitted,
    ...(first && { first }),
    hints: [],
  }
}

/** The report of a rollout of which there is nothing to run again. */
export function skippedReport({ id, attempt, outcome }: BareRecord, why: string): ReplayReport {
  return { ...nothingRan, rollout: id, attempt, outcome, verdict: 'skipped', why }
}

/** The report of a damaged rollout. */
export function unreadableReport(rollout: string, attempt: number, why: string): ReplayReport {
  return { ...nothingRan, rollout, attempt, outcome: null, verdict: 'unreadable', why }
}

const nothingRan = { messages: 0, children: { replayed: 0, kept: 0 }, differences: [], omitted: 0, hints: [] }

function compared(
  { record, sessions }: Recording,
  replayed: Replayed,
  kept: readonly (readonly [key: string, child: KeptChild])[],
): Comparison {
  const comparison = new Comparison()
  const isKept = (id: string): boolean =>
    kept.some(([key]) => id === record.id + key || id.startsWith(`${record.id}${key}.`))
  for (const { id, nodes } of sessions) {
    if (!replayed.sessions.has(id) && !isKept(id)) comparison.strange(id, 'recorded', nodes.length)
  }
  const known = new Map(sessions.map((session) => [session.id, session]))
  for (const [id, session] of replayed.sessions) {
    const recorded = known.get(id)
    if (!recorded) {
      comparison.strange(id, 'replayed', session.nodes.length)
      continue
    }
    comparison.session(recorded, session)
    if (recorded.parent !== null && recorded.record && session.record !== undefined) {
      comparison.record(id, recorded.record, JSON.parse(session.record) as BareRecord)
    }
  }
  if (replayed.record) comparison.record(record.id, record, replayed.record)
  return comparison
}
