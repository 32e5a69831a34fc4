import type { DiscardRecord } from '../../schema/index.ts'
import type { SessionReader } from '../../store/index.ts'
import { Slice } from '../../kit/index.ts'

/**
 * How the reply of that name was lost, if one was. Looked for in the store, only to say why there is no complete one: nobody
 * need remember their names. Others have their turns meanwhile.
 */
export async function discardedNamed(
  sessions: SessionReader,
  session: string,
  replyId: string,
): Promise<DiscardRecord | undefined> {
  for await (const { discarded } of new Slice().over(sessions.bareNodesOf(session))) {
    if (discarded?.replyId === replyId) return discarded
  }
  return undefined
}
