import type { SessionReader, StoredSession } from '../../store/index.ts'
import { SessionTally } from './session-tally.ts'
import { storedSummary, viewOf, type SessionView } from './session-view.ts'

/** The view of a stored session, for readers of a run whose gateway does not run. */
export function storedView(reader: SessionReader, session: StoredSession): SessionView {
  const { id } = session
  const tally = new SessionTally()
  for (const node of reader.bareNodesOf(id)) tally.add(node)
  const reward = reader.rewardsOf(id).find(({ node }) => node === null)?.value ?? null
  return viewOf(storedSummary(session), tally, { running: 0, reward })
}
