import type { DiscardRecord } from '../../schema/index.ts'
import type { SessionReader } from '../../store/index.ts'
import { TimeSlice } from '../../kit/index.ts'

/**
 * How the reply of that name was lost, if one was. It is looked for in the store, because lost names are needed only to say
 * why there is no complete reply, and so are not remembered. Other work has its turns meanwhile.
 */
export async function discardedNamed(
  sessions: SessionReader,
  session: string,
  replyId: string,
): Promise<DiscardRecord | undefined> {
  for await (const { discarded } of new TimeSlice().over(sessions.bareNodesOf(session))) {
    if (discarded?.replyId === replyId) return discarded
  }
  return undefined
}
