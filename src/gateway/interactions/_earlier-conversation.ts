import type { DialectRequest } from '../../dialects/index.ts'
import { MillraceError } from '../../errors/index.ts'
import type { DiscardRecord, Message, MessageNode } from '../../schema/index.ts'
import type { SessionReader } from '../../store/index.ts'
import { isSealed, keepSealed } from '../../inference/index.ts'
import { replyIn } from '../sessions/reply-in.ts'
import { TimeSlice } from '../../kit/index.ts'

/** The error for a request that continues a reply which is not known, or was lost. */
export function replyUnknown(replyId: string, lost?: DiscardRecord): MillraceError {
  const name = replyId.slice(0, 80)
  const why = lost
    ? `reply ${name} did not end (${lost.why}), so that nothing goes on from it`
    : `there is no reply ${name} to go on from in this session`
  const message = `${why}. Send the conversation in input instead.`
  return new MillraceError('model_rejected', message, { data: { status: 404, param: 'previous_response_id' } })
}

/** The error for a request that continues a reply outside of any session, where no reply is recorded. */
export function replyOutside(replyId: string): MillraceError {
  const message = `previous_response_id (${replyId.slice(0, 80)}) needs a session, whose replies are recorded, and this request has none: POST /v1/sessions starts one, and its key goes with its requests. Or send the conversation in input instead.`
  return new MillraceError('model_rejected', message, { data: { status: 404, param: 'previous_response_id' } })
}

/** The conversation up to and including a reply. */
export interface EarlierConversation {
  readonly messages: readonly Message[]
  /** Whether the first message is the instructions of the request that the reply answers. */
  readonly hasInstructions: boolean
}

/**
 * The conversation that a request continues, with the request's own messages after it. Instructions hold only for the request
 * that gives them: earlier ones are not carried over, and the request's own come first.
 */
export function wholeConversation(
  earlier: EarlierConversation,
  { messages, hasInstructions }: DialectRequest,
): Message[] {
  const said = earlier.messages.slice(earlier.hasInstructions ? 1 : 0)
  const own = hasInstructions ? 1 : 0
  return [...messages.slice(0, own), ...said, ...messages.slice(own)]
}

/** Reads the conversation up to a reply, which is on disk. Other work has its turns meanwhile. */
export async function conversationTo(
  sessions: SessionReader,
  session: string,
  leaf: number,
): Promise<EarlierConversation> {
  const nodes = new Map<number, MessageNode>()
  const slice = new TimeSlice()
  for (const node of sessions.bareNodesOf(session)) {
    nodes.set(node.seq, node)
    if (node.seq === leaf) break
    if (slice.isOver) await slice.rest()
  }
  const messages: Message[] = []
  const reply = nodes.get(leaf)
  let node = reply
  while (node) {
    messages.push(node.message)
    keepReasoning(node)
    node = node.parent === null ? undefined : nodes.get(node.parent)
  }
  return { messages: messages.toReversed(), hasInstructions: (reply && replyIn(reply)?.hasInstructions) === true }
}

/** Keeps sealed reasoning with its message: a backend that wrote it can then be sent it again. */
function keepReasoning(node: MessageNode): void {
  const call = replyIn(node)
  if (call?.original && isSealed(call.original)) keepSealed(node.message, call)
}
