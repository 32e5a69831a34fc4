import type { WireError } from '../../errors/index.ts'
import type { RecordedSession } from '../../inference/index.ts'
import { outcomes, type Json, type MessageNode, type RolloutRecord } from '../../schema/index.ts'
import { missingMessage, type BareRecord, type RunReader, type StoredAttempt } from '../../store/index.ts'
import type { ToolCatalogue } from '../../tools/index.ts'
import { agentOutcomeOf, endInReplay } from '../result/outcome.ts'
import {
  answerOf,
  isOfVerification,
  judgeCallEvent,
  type RecordedAnswer,
  type RecordedVerdict,
  type RecordedVerification,
  type Recording,
  serverCallEvent,
  verdictOf,
  verificationEvent,
  verificationOf,
} from './recording.ts'
import { contextEvent } from '../agent/context-copy.ts'
import { resumedEvent } from '../schedule/journal-entries.ts'

export interface StoredSession {
  readonly id: string
  readonly parent: string | null
  readonly startedAt: number
  readonly nodes: readonly MessageNode[]
  /** What the turns were sent in place of the conversation, where it differs. */
  readonly contexts: readonly Json[]
  /** What the agent heard of the reward before its end. */
  readonly verifications: readonly RecordedVerification[]
  readonly record: BareRecord | undefined
}

/** The sessions of an attempt: its own first, then its children's, each before its own children. Throws if one is damaged. */
export function readSessions(reader: RunReader, rollout: string, attempt: number): StoredSession[] {
  const own = reader.attempts(rollout).find((each) => each.attempt === attempt)
  return own ? [...sessionsOf(reader, own, null)] : []
}

function* sessionsOf(
  reader: RunReader,
  { rollout: id, attempt, startedAt, end }: StoredAttempt,
  parent: string | null,
): Generator<StoredSession, void, void> {
  const nodes = wholeNodes(reader, { rollout: id, attempt, leaf: end?.leaf ?? null })
  const contexts = reader.eventsOf(id, attempt, contextEvent).map(({ data }) => data)
  const verifications = reader
    .eventsOf(id, attempt, verificationEvent)
    .flatMap(({ data }) => verificationOf(data) ?? [])
  yield { id, parent, startedAt, nodes, contexts, verifications, record: end?.record }
  for (const child of reader.children(id)) if (child.attempt === attempt) yield* sessionsOf(reader, child, id)
}

/** The nodes of an attempt. An ended attempt has a leaf, which says how many there must be. */
export function wholeNodes(
  reader: RunReader,
  { rollout, attempt, leaf }: { readonly rollout: string; readonly attempt: number; readonly leaf: number | null },
): MessageNode[] {
  const nodes = reader.nodes(rollout, attempt)
  if (leaf !== null && leaf >= nodes.length) throw missingMessage(rollout, leaf)
  return nodes
}

/** The recording of an attempt that was cut off, or only lacks its score, for the launch that goes on with it. */
export function recordingToResume([own, ...children]: readonly StoredSession[]): Recording {
  if (!own) return { purpose: 'resume', sessions: { '': { nodes: [], journalled: 0 } } }
  const reported = own.record && { metrics: own.record.metrics, notes: own.record.info ?? {} }
  const sessions = byKey(own.id, [own, ...children], ({ nodes, record }): RecordedSession => {
    // An agent that the infrastructure or a stop ended may go on; one that used up its budget may not.
    const end = record && outcomes[agentOutcomeOf(record)].truncated ? recordedEnd(record) : undefined
    return { nodes, journalled: nodes.length, ...(end && { end }) }
  })
  const verifications = byKey(own.id, [own, ...children], (session) =>
    session.verifications.map((each) => ({ ...each, isJournalled: true })),
  )
  return { purpose: 'resume', sessions, verifications, ...(reported && { reported }) }
}

/** The recording that a fork begins with, from sessions up to a turn: whatever goes beyond them is live. */
export function recordingToFork(rollout: string, sessions: readonly StoredSession[]): Recording {
  return {
    purpose: 'fork',
    sessions: byKey(rollout, sessions, ({ nodes }) => ({ nodes: nodes.map(repeated) })),
    verifications: byKey(rollout, sessions, ({ nodes, verifications }) =>
      verifications.filter(({ at }) => at < nodes.length),
    ),
  }
}

/** Rows of the fork do not train it: another model may have sampled it, and each of the fork's rollouts has it. */
function repeated(node: MessageNode): MessageNode {
  return node.call ? { ...node, call: { ...node.call, repeated: true } } : node
}

export function recordingToReplay(
  record: RolloutRecord,
  sessions: readonly StoredSession[],
  recorded: Pick<Recording, 'verdicts' | 'serverAnswers'> & {
    readonly catalogues: readonly ToolCatalogue[] | undefined
  },
): Recording {
  const { catalogues, ...answers } = recorded
  return {
    purpose: 'replay',
    sessions: byKey(record.id, sessions, ({ id, nodes, record: end }) => ({
      nodes,
      end: (end && recordedEnd(end)) ?? unrecorded(id),
    })),
    verifications: byKey(record.id, sessions, ({ verifications }) => verifications),
    ...answers,
    ...(catalogues && { catalogues }),
    end: record.outcome === 'reward_error' && record.error ? record.error : unrecorded(record.id),
  }
}

function byKey<Recorded>(
  rollout: string,
  sessions: readonly StoredSession[],
  recorded: (session: StoredSession) => Recorded,
): Readonly<Record<string, Recorded>> {
  return Object.fromEntries(sessions.map((session) => [session.id.slice(rollout.length), recorded(session)]))
}

function unrecorded(id: string): WireError {
  return {
    code: 'replay_diverged',
    message: `rollout ${id} needs a turn, a tool's answer, a child or a verdict that is not in its recording`,
  }
}

/** The error that ended the agent of a session, to be raised where its recording ends; undefined if it ended by itself. */
function recordedEnd(record: BareRecord): WireError | undefined {
  const outcome = agentOutcomeOf(record)
  const end = endInReplay[outcome]
  if (end === 'own') return undefined
  if (end !== 'outside') {
    return { code: 'budget_exhausted', message: `it was ended as ${outcome} here`, data: { limit: end } }
  }
  return outcome === 'context_length' || !record.error
    ? { code: 'context_length', message: 'the conversation was too long for the model here' }
    : record.error
}

export function readJudgeCalls(reader: RunReader, rollout: string, attempt: number): RecordedVerdict[] {
  return reader.eventsOf(rollout, attempt, judgeCallEvent).flatMap(({ data }) => verdictOf(data) ?? [])
}

/** The verdicts about an attempt in the launch that it ended in, in order. */
export function readVerdicts(reader: RunReader, rollout: string, attempt: number): RecordedVerdict[] {
  return sinceResumed(reader, { rollout, attempt, name: judgeCallEvent }).flatMap((data) => verdictOf(data) ?? [])
}

/** What tool servers answered to the environment's own code in the launch that an attempt ended in, in order. */
export function readServerAnswers(reader: RunReader, rollout: string, attempt: number): RecordedAnswer[] {
  return sinceResumed(reader, { rollout, attempt, name: serverCallEvent }).flatMap((data) => answerOf(data) ?? [])
}

/** The events since the attempt was last resumed, which asks judges and servers for everything again, but not for verifications. */
function sinceResumed(
  reader: RunReader,
  { rollout, attempt, name }: { readonly rollout: string; readonly attempt: number; readonly name: string },
): Json[] {
  const resumedAt = reader.eventsOf(rollout, attempt, resumedEvent).at(-1)?.position ?? -1
  return reader
    .eventsOf(rollout, attempt, name)
    .flatMap(({ position, data }) => (position < resumedAt || isOfVerification(data) ? [] : [data]))
}
