import { MillraceError } from '../../errors/index.ts'
import type { DiscardRecord } from '../../schema/index.ts'
import type { RunStore, StoredSession } from '../../store/index.ts'
import { discardedNamed } from './discarded-named.ts'
import { OpenSession } from './open-session.ts'
import type { OpenSessions } from './open-sessions.ts'

/** What a reward is for: a reply, by its client's name for it or by its node; without either, the session as a whole. */
export interface RewardedName {
  readonly interactionId?: string
  readonly node?: number
}

interface Records {
  readonly store: RunStore
  readonly openSessions: OpenSessions
}

/** How many replies of the same name an error lists. */
const toldNodes = 8

/** The node of the named reply; null for the whole session. Throws if there is no such reply, or more than one. */
export async function rewardedReply(
  records: Records,
  session: OpenSession | StoredSession,
  { interactionId, node }: RewardedName,
): Promise<number | null> {
  if (node !== undefined && interactionId !== undefined) {
    throw new MillraceError('usage', 'name the reply by its interactionId or by its node, not both')
  }
  if (node !== undefined) return replyAt(records, session.id, node)
  return interactionId === undefined ? null : replyNamed(records, session, interactionId)
}

async function replyAt({ store }: Records, id: string, node: number): Promise<number> {
  await store.journal.durable()
  const found = store.reader.sessions.bareNode(id, node)
  if (found?.call) return node
  if (found?.discarded) throw discardedReply(`the reply at node ${node}`, id, found.discarded)
  const message = `session ${id} has no complete reply at node ${node}; an export says the node of each`
  throw new MillraceError('usage', message, { data: { status: 404 } })
}

async function replyNamed(
  { store, openSessions }: Records,
  session: OpenSession | StoredSession,
  replyId: string,
): Promise<number> {
  const { id } = session
  const [first, ...others] =
    session instanceof OpenSession
      ? await openSessions.use(session, ({ tree, unheard }) =>
          tree.repliesNamed(replyId).filter((node) => !unheard.has(node)),
        )
      : store.reader.sessions.repliesNamed(id, replyId)
  if (first === undefined) {
    const called = replyId.slice(0, 80)
    await store.journal.durable()
    const discarded = await discardedNamed(store.reader.sessions, id, replyId)
    if (discarded) throw discardedReply(`reply ${called}`, id, discarded)
    const which = '`interactionId` is the `id` of a reply as its client got it, which an export has as `interaction`'
    const message = `session ${id} has no reply ${called}; ${which}`
    throw new MillraceError('usage', message, { data: { status: 404 } })
  }
  if (others.length === 0) return first
  const count = others.length + 1
  const which = `${[first, ...others].slice(0, toldNodes).join(', ')}${count > toldNodes ? ', …' : ''}`
  const message = `session ${id} has ${count} replies called ${replyId.slice(0, 80)}, at the nodes ${which}; say which one with \`node\``
  throw new MillraceError('usage', message, { data: { status: 409 } })
}

function discardedReply(which: string, id: string, { why }: DiscardRecord): MillraceError {
  const message = `${which} of session ${id} was discarded (${why}): nobody got all of it, so nothing is trained on it and it takes no reward`
  return new MillraceError('usage', message, { data: { status: 404 } })
}
