import type { DialectRequest } from '../dialects/index.ts'
import { MillraceError } from '../errors/index.ts'
import type { Message, MessageNode } from '../schema/index.ts'
import type { SessionReader } from '../store/index.ts'

/** A reply that is named as the one to go on from, and is not known. */
export function replyUnknown(replyId: string): MillraceError {
  const message = `there is no reply ${replyId.slice(0, 80)} to go on from in this session. Send the conversation in input instead.`
  return new MillraceError('model_rejected', message, { data: { status: 404, param: 'previous_response_id' } })
}

/** The conversation that a request goes on with, and the request's own messages after it. */
export function wholeConversation(earlier: readonly Message[], request: DialectRequest): Message[] {
  const { messages, body } = request
  // Instructions are not part of what a Responses client goes on from: new ones take the place of the old ones.
  const [instructions, ...input] = messages
  if (typeof body['instructions'] !== 'string' || !instructions) return [...earlier, ...messages]
  const said = earlier[0]?.role === 'system' ? earlier.slice(1) : earlier
  return [instructions, ...said, ...input]
}

/** What was said in a session up to a node. The node is on disk. */
export function conversationTo(sessions: SessionReader, session: string, leaf: number): Message[] {
  const nodes = new Map<number, MessageNode>()
  for (const node of sessions.bareNodesOf(session)) {
    nodes.set(node.seq, node)
    if (node.seq === leaf) break
  }
  const messages: Message[] = []
  let node = nodes.get(leaf)
  while (node) {
    messages.push(node.message)
    node = node.parent === null ? undefined : nodes.get(node.parent)
  }
  return messages.toReversed()
}
