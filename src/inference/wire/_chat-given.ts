import type { AssistantMessage, Json, JsonObject, Message } from '../../schema/index.ts'
import { foreignPart, type Wording } from './_unsayable.ts'

/** What a model is told, by whomever. */
export type GivenMessage = Exclude<Message, AssistantMessage>

/** Whether it is not sent as it is kept. One that nobody checked may lack its content. */
export function hasOtherParts({ content }: GivenMessage): boolean {
  return Array.isArray(content) && content.some((part) => part.type === 'other')
}

/** In the words of Chat, those included that only it knows. */
export function chatGiven({ content, ...message }: GivenMessage, wording: Wording): JsonObject {
  if (typeof content === 'string') return { ...message, content }
  const parts = content.map((part): Json => {
    if (part.type !== 'other') return { ...part }
    if (part.api !== 'chat') throw foreignPart(wording, part)
    return part.value
  })
  return { ...message, content: parts }
}
