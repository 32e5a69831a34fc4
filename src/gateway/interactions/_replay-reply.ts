import type { DialectRequest, ServerDialect } from '../../dialects/index.ts'
import { MillraceError } from '../../errors/index.ts'
import type { MessageNode } from '../../schema/index.ts'
import type { Journal, SessionReader } from '../../store/index.ts'
import { goneStatus, type InteractionEnd } from './live-interaction.ts'
import type { SessionMemory } from '../sessions/open-session.ts'
import { sendReply } from './_send-reply.ts'
import { TimeSlice } from '../../kit/index.ts'
import type { ClientReply } from './client-reply.ts'

export interface ReplayOptions {
  readonly sessions: SessionReader
  readonly session: string
  /** The node of the reply, which is on disk. */
  readonly seq: number
  readonly client: ClientReply
  readonly dialect: ServerDialect
  readonly request: DialectRequest
  readonly journal: Journal
  readonly memory: Pick<SessionMemory, 'recent' | 'unheard'>
}

/** Sends a reply again, from its record: nothing is sampled for a client that only did not hear it. */
export async function replayReply(options: ReplayOptions): Promise<InteractionEnd> {
  const { memory, seq } = options
  const onTold = memory.unheard.tell(seq)
  if (!onTold) return sendRecorded(options)
  let wasHeard = false
  try {
    const end = await sendRecorded(options)
    wasHeard = end.status !== goneStatus
    return end
  } finally {
    onTold(wasHeard)
    if (!wasHeard) memory.recent.unhear(seq)
  }
}

async function sendRecorded(options: ReplayOptions): Promise<InteractionEnd> {
  const { sessions, journal, session, seq, client, dialect, request } = options
  // The reply, or that it counts as heard, may not be in the store yet.
  await journal.durable()
  // Tokens are read only for clients that want them.
  const node = request.wantsTokenIds ? await nodeWithTokens(sessions, session, seq) : sessions.bareNode(session, seq)
  if (!node?.call || node.message.role !== 'assistant') {
    throw new MillraceError('internal', `session ${session} has no reply ${seq} to repeat`)
  }
  const { message, call, tokens, at } = node
  const { finishReason, usage, stopSequence, stopReason, original, itemIds, replyId = '' } = call
  const head = { id: replyId, itemIds, model: request.model, createdAt: Math.floor(at / 1000), request }
  const answer = { kind: 'complete', replyId } as const
  await client.ready?.()
  if (client.isGone) return { answer, status: goneStatus }
  const reply = {
    message,
    finishReason,
    usage,
    ...(stopSequence !== undefined && { stopSequence }),
    ...(stopReason !== undefined && { stopReason }),
    ...(original && { original }),
    ...(tokens && { tokens }),
  }
  sendReply(client, dialect, head, reply)
  return { answer, status: 200 }
}

/** A node with its tokens. Prompts build on each other, so all nodes before it are read. Other work has its turns meanwhile. */
async function nodeWithTokens(sessions: SessionReader, session: string, seq: number): Promise<MessageNode | undefined> {
  const slice = new TimeSlice()
  for (const node of sessions.nodesOf(session)) {
    if (node.seq === seq) return node
    if (slice.isOver) await slice.rest()
  }
  return undefined
}
