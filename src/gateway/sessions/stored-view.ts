import type { SessionReader, StoredSession } from '../../store/index.ts'
import { SessionTally } from './session-tally.ts'
import { storedSummary, viewOf, type SessionView } from './session-view.ts'

/** A session as its records have it, for those who look at a run without its gateway. */
export function storedView(reader: SessionReader, session: StoredSession): SessionView {
  const { id } = session
  const tally = new SessionTally()
  for (const node of reader.bareNodesOf(id)) tally.add(node)
  const reward = reader.rewardsOf(id).find(({ node }) => node === null)?.value ?? null
  return viewOf(storedSummary(session), tally, { running: 0, reward })
}
