import type { AssistantMessage, Json, JsonObject, Message } from '../../schema/index.ts'
import { foreignPart, type Wording } from './_unsayable.ts'

/** A message that the model is given, from any role but its own. */
export type GivenMessage = Exclude<Message, AssistantMessage>

/** Whether the message must be rewritten before it is sent. A message that was never checked may lack its content. */
export function mustBeRewritten(message: GivenMessage): boolean {
  if (message.role === 'tool' && message.is_error !== undefined) return true
  const { content } = message
  return Array.isArray(content) && content.some((part) => part.type === 'other')
}

/** The message in the words of Chat, including the parts that only Chat knows. Chat has no field for a failed tool call. */
export function chatGiven(message: GivenMessage, wording: Wording): JsonObject {
  if (message.role !== 'tool') return writtenGiven(message, wording)
  const { is_error: _mark, ...result } = message
  return writtenGiven(result, wording)
}

function writtenGiven({ content, ...message }: GivenMessage, wording: Wording): JsonObject {
  if (typeof content === 'string') return { ...message, content }
  const parts = content.map((part): Json => {
    if (part.type !== 'other') return { ...part }
    if (part.api !== 'chat') throw foreignPart(wording, part)
    return part.value
  })
  return { ...message, content: parts }
}
