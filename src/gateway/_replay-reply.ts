import type { DialectRequest, ServerDialect } from '../dialects/index.ts'
import { MillraceError } from '../errors/index.ts'
import type { SessionReader } from '../store/index.ts'
import type { InteractionEnd } from './_live-interaction.ts'
import { sendReply } from './_send-reply.ts'
import type { ClientReply } from './client-reply.ts'

export interface ReplayOptions {
  readonly sessions: SessionReader
  readonly session: string
  /** Of the reply, which is on disk. */
  readonly seq: number
  readonly client: ClientReply
  readonly dialect: ServerDialect
  readonly request: DialectRequest
}

/** Sends a reply once more, from its record: nothing is sampled for a client that only did not hear it. */
export async function replayReply(options: ReplayOptions): Promise<InteractionEnd> {
  const { sessions, session, seq, client, dialect, request } = options
  // Tokens are read only for those who see them.
  const nodes = request.wantsTokenIds ? sessions.nodesOf(session) : sessions.bareNodesOf(session)
  const node = nodes.find((each) => each.seq === seq)
  if (!node?.call || node.message.role !== 'assistant') {
    throw new MillraceError('internal', `session ${session} has no reply ${seq} to repeat`)
  }
  const { message, call, tokens, at } = node
  const { finishReason, usage, replyId = '' } = call
  const head = { id: replyId, model: request.model, createdAt: Math.floor(at / 1000), request }
  sendReply(client, dialect, head, { message, finishReason, usage, ...(tokens && { tokens }) })
  return { answer: { kind: 'complete', replyId }, status: 200 }
}
