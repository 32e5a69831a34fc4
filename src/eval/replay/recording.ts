import { MillraceError, type WireError } from '../../errors/index.ts'
import { nearestNames } from '../../kit/index.ts'
import {
  contextEvent,
  keptChildEvent,
  keptChildOf,
  keptChildrenOf,
  readJudgeCalls,
  readServerCalls,
  type Cassette,
  type KeptChild,
  type KeptChildren,
  type RecordedAnswer,
  type RecordedVerdict,
} from '../../rollout/index.ts'
import type { Json, MessageNode, RolloutRecord } from '../../schema/index.ts'
import type { BareRecord, RunReader } from '../../store/index.ts'
import { unfit } from '../option-values.ts'
import { recordedEnd } from '../recorded-end.ts'

/** A conversation of a rollout: its own, or a child's. */
export interface RecordedSession {
  readonly id: string
  /** The session that started this one; null for the rollout's own. */
  readonly parent: string | null
  readonly startedAt: number
  readonly nodes: readonly MessageNode[]
  /** What the turns were sent in place of the conversation, where it differs. */
  readonly contexts: readonly Json[]
  /** The session's record; undefined if it was cut off. */
  readonly record: BareRecord | undefined
}

/** Everything a run holds of one rollout, by its accepted attempt. */
export interface Recording {
  readonly record: RolloutRecord
  readonly startedAt: number
  /** The rollout's own first, then its children, each before its own children. */
  readonly sessions: readonly RecordedSession[]
  /** The figures of the children, with those that a fork took over from the rollout it was forked from. */
  readonly children: KeptChildren
  readonly verdicts: readonly RecordedVerdict[]
  /** By session, verdicts whose questions were asked again later: they were paid for, and no other field counts them. */
  readonly superseded: Readonly<Record<string, readonly RecordedVerdict[]>>
  readonly serverAnswers: readonly RecordedAnswer[]
}

/** Reads one rollout whole. If it has no accepted result, throws `run_not_found` with the nearest ids. */
export function readRecording(reader: RunReader, rollout: string): Recording {
  if (typeof rollout !== 'string') throw unfit('rollout', "a rollout's id, such as 0-0", rollout)
  const record = reader.rollout(rollout)
  if (!record) throw noRollout(reader, rollout)
  const { attempt } = record
  const startedAt = reader.attempts(rollout).find((each) => each.attempt === attempt)?.startedAt ?? 0
  const own: RecordedSession = {
    id: rollout,
    parent: null,
    startedAt,
    nodes: reader.nodes(rollout, attempt),
    contexts: readContexts(reader, rollout, attempt),
    record,
  }
  const sessions = [own, ...childrenOf(reader, rollout, attempt)]
  const judged = sessions.map(({ id }) => [id, readJudgeCalls(reader, id, attempt)] as const)
  const verdicts = judged.flatMap(([, calls]) => calls.slice(supersededIn(calls)))
  const superseded = Object.fromEntries(judged.map(([id, calls]) => [id, calls.slice(0, supersededIn(calls))]))
  const children = keptChildrenOf(
    rollout,
    sessions.flatMap((session) => session.record ?? []),
    Object.fromEntries(sessions.flatMap(({ id }) => readTakenOver(reader, id, attempt))),
  )
  const serverAnswers = readServerAnswers(reader, rollout, attempt)
  return { record, startedAt, sessions, children, verdicts, superseded, serverAnswers }
}

/** The verdicts about an attempt in the sitting that it ended in, in order. */
export function readVerdicts(reader: RunReader, rollout: string, attempt: number): RecordedVerdict[] {
  const calls = readJudgeCalls(reader, rollout, attempt)
  return calls.slice(supersededIn(calls))
}

/** US dollars that the judges of an attempt took, in all its sittings. Calls without a price count as nothing. */
export function readJudgeCost(reader: RunReader, rollout: string, attempt: number): number {
  return readJudgeCalls(reader, rollout, attempt).reduce((sum, { cost }) => sum + (cost ?? 0), 0)
}

/** How many of a session's answers were asked for again in a later sitting. */
function supersededIn(calls: readonly Pick<RecordedVerdict, 'earlier'>[]): number {
  return calls.at(-1)?.earlier ?? 0
}

/**
 * What tool servers answered to the environment's own code in the sitting that an attempt ended in, in order. A resumed attempt
 * asks for all its answers again, so those of earlier sittings are left out.
 */
export function readServerAnswers(reader: RunReader, rollout: string, attempt: number): RecordedAnswer[] {
  const calls = readServerCalls(reader, rollout, attempt)
  return calls.slice(supersededIn(calls))
}

function readContexts(reader: RunReader, rollout: string, attempt: number): Json[] {
  return reader.eventsOf(rollout, attempt, contextEvent).map(({ data }) => data)
}

function readTakenOver(reader: RunReader, rollout: string, attempt: number): (readonly [string, KeptChild])[] {
  return reader.eventsOf(rollout, attempt, keptChildEvent).flatMap(({ data }) => {
    const kept = keptChildOf(data)
    return kept ? [kept] : []
  })
}

/** A recording as a cassette with an end: the rollout hears nothing else. */
export function closedCassette(
  { record, sessions, children, verdicts, superseded, serverAnswers }: Recording,
  catalogues: Cassette['catalogues'],
): Cassette {
  const tapes = sessions.map(({ id, nodes, record: end }) => {
    return [id.slice(record.id.length), { nodes, end: endOf(id, end) }] as const
  })
  const beyond = record.outcome === 'reward_error' && record.error ? record.error : unheard(record.id)
  return {
    tapes: Object.fromEntries(tapes),
    children,
    verdicts,
    superseded,
    serverAnswers,
    ...(catalogues && { catalogues }),
    end: beyond,
  }
}

/** The error for a session that asks for more than was recorded. */
function endOf(id: string, end: BareRecord | undefined): WireError {
  return (end && recordedEnd(end)) ?? unheard(id)
}

function unheard(id: string): WireError {
  return {
    code: 'replay_diverged',
    message: `rollout ${id} asks for something that is not in its recording: a turn, a tool's answer, a child or a verdict`,
  }
}

function* childrenOf(reader: RunReader, parent: string, attempt: number): Generator<RecordedSession, void, void> {
  for (const child of reader.children(parent)) {
    if (child.attempt !== attempt) continue
    const { rollout: id, startedAt, end } = child
    yield {
      id,
      parent,
      startedAt,
      nodes: reader.nodes(id, attempt),
      contexts: readContexts(reader, id, attempt),
      record: end?.record,
    }
    yield* childrenOf(reader, id, attempt)
  }
}

/** How many ids are searched for the one that was meant. */
const maxCandidates = 10_000

function noRollout(reader: RunReader, rollout: string): MillraceError {
  const ids: string[] = []
  for (const each of reader.ended()) {
    ids.push(each.rollout)
    if (ids.length === maxCandidates) break
  }
  const near = nearestNames(rollout, ids)
  const [first] = ids
  const hint =
    near.length > 0
      ? `did you mean ${near.join(' or ')}?`
      : first === undefined
        ? 'none has ended yet'
        : `the first that ended is ${first}`
  return new MillraceError('run_not_found', `the run has no ended rollout ${rollout}; ${hint}`)
}
