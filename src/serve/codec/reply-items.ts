import { isJsonObject, type Json, type JsonObject } from '../../schema/index.ts'

/** How the items of an episode are written: as OpenAI's clients need them, or as NeMo Gym writes them. */
export type ItemForm = 'items' | 'gym-items'

/** An item for OpenAI's clients, which read no content but a list. */
export function replyItem(item: JsonObject): JsonObject {
  const { type, content } = item
  if (type !== 'message' || typeof content !== 'string') return item
  return { ...item, content: [{ type: 'input_text', text: content }] }
}

/** The same for JSON of items, or for a piece of it. A message that no model has said is in one piece. */
export function replyItemText(text: string): string {
  if (!text.includes('{"id":"msgu_')) return text
  return JSON.stringify(JSON.parse(text, (_key, value: Json) => (isJsonObject(value) ? replyItem(value) : value)))
}
