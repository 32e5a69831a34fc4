import type { ReplyDelta } from '../inference/index.ts'
import type { AssistantMessage } from '../schema/index.ts'

/**
 * The deltas of a whole message, for a client that wants a stream when the reply is there already. `asWritten` gives the
 * arguments of a call as the client's API has them, if that is not the model's own text.
 */
export function replyDeltas(message: AssistantMessage, asWritten = exactly): ReplyDelta[] {
  const deltas: ReplyDelta[] = []
  if (message.reasoning_content) deltas.push({ kind: 'reasoning', text: message.reasoning_content })
  if (message.content) deltas.push({ kind: 'content', text: message.content })
  if (message.refusal) deltas.push({ kind: 'refusal', text: message.refusal })
  for (const [index, call] of (message.tool_calls ?? []).entries()) {
    deltas.push({ kind: 'tool-call', index, id: call.id, name: call.function.name })
    const text = asWritten(call.function.arguments)
    if (text !== '') deltas.push({ kind: 'arguments', index, text })
  }
  return deltas
}

function exactly(written: string): string {
  return written
}
