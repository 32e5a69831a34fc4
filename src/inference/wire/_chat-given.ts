import type { AssistantMessage, Json, JsonObject, Message } from '../../schema/index.ts'
import { foreignPart, type Wording } from './_unsayable.ts'

/** A message that the model is given, from any role but its own. */
export type GivenMessage = Exclude<Message, AssistantMessage>

/** Whether the message must be rewritten before it is sent. A message that was never checked may lack its content. */
export function hasOtherParts({ content }: GivenMessage): boolean {
  return Array.isArray(content) && content.some((part) => part.type === 'other')
}

/** The message in the words of Chat, including the parts that only Chat knows. */
export function chatGiven({ content, ...message }: GivenMessage, wording: Wording): JsonObject {
  if (typeof content === 'string') return { ...message, content }
  const parts = content.map((part): Json => {
    if (part.type !== 'other') return { ...part }
    if (part.api !== 'chat') throw foreignPart(wording, part)
    return part.value
  })
  return { ...message, content: parts }
}
