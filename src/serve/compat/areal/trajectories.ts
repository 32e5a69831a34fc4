import { z } from 'zod'
import { safeParse } from '../../../schema/index.ts'
import { type Journal, type RunReader, sessionAttempt } from '../../../store/index.ts'

/**
 * A part of a session that ends with a reward: the complete replies after the trajectory before it, up to `end`. A session of
 * training has one; a session that is used online has one for each reward.
 */
export interface Trajectory {
  /** From 0 on in each session. */
  readonly id: number
  /** The node that it begins after; -1 if there is none. */
  readonly after: number
  readonly end: number
  /** The reply that the reward was for. */
  readonly rewarded: number
  readonly isRemoved: boolean
}

const closed = 'areal-trajectory'
const removed = 'areal-trajectory-removed'

const closedSchema = z.object({ end: z.int(), rewarded: z.int() })
const removedSchema = z.object({ id: z.int() })

/** The trajectories of a session, as far as they are on disk. */
export function trajectoriesOf(reader: RunReader, session: string): Trajectory[] {
  const gone = new Set<number>()
  for (const { data } of reader.eventsOf(session, sessionAttempt, removed)) {
    const read = safeParse(removedSchema, data)
    if (read.success) gone.add(read.data.id)
  }
  const found: Trajectory[] = []
  for (const { data } of reader.eventsOf(session, sessionAttempt, closed)) {
    const read = safeParse(closedSchema, data)
    if (!read.success) continue
    const id = found.length
    found.push({ id, after: found.at(-1)?.end ?? -1, ...read.data, isRemoved: gone.has(id) })
  }
  return found
}

export function closeTrajectory(
  journal: Journal,
  session: string,
  { end, rewarded }: Pick<Trajectory, 'end' | 'rewarded'>,
): void {
  note(journal, { session, name: closed, data: { end, rewarded } })
}

/** The trajectory is not exported any more. Its messages stay in the session. */
export function removeTrajectory(journal: Journal, session: string, id: number): void {
  note(journal, { session, name: removed, data: { id } })
}

interface Note {
  readonly session: string
  readonly name: string
  readonly data: object
}

function note(journal: Journal, { session, name, data }: Note): void {
  const place = { rollout: session, attempt: sessionAttempt }
  journal.append({ kind: 'event', ...place, name, at: Date.now(), data: JSON.stringify(data) })
}

interface CompleteReply {
  readonly seq: number
  readonly id: string | undefined
}

/** The complete replies of a session in the order in which they were recorded, as far as they are on disk. */
export function completeReplies(reader: RunReader, session: string): CompleteReply[] {
  const replies: CompleteReply[] = []
  for (const { seq, call } of reader.sessions.bareNodesOf(session)) if (call) replies.push({ seq, id: call.replyId })
  return replies
}
