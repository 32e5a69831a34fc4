import { isJsonList, isJsonObject, type Json, type JsonObject } from '../../schema/index.ts'

/** How the items of an episode are written: as OpenAI's clients need them, or as NeMo Gym writes them. */
export type ItemForm = 'items' | 'gym-items'

/** What the items begin with that no model has said. */
const givenMessage = '{"id":"msgu_'

/** An item for OpenAI's clients, which read no content but a list. */
export function replyItem(item: JsonObject): JsonObject {
  const { type, content } = item
  if (type !== 'message' || typeof content !== 'string') return item
  return { ...item, content: [{ type: 'input_text', text: content }] }
}

/** A list of items as JSON, in pieces. An item without tokens is one piece. */
export function* replyItemPieces(pieces: Iterable<string>): Generator<string, void, void> {
  for (const piece of pieces) yield piece.startsWith(givenMessage) ? replyItemText(piece) : piece
}

/** JSON of an item, or of a list of items. */
export function replyItemText(text: string): string {
  if (!text.includes(givenMessage)) return text
  const value = JSON.parse(text) as Json
  const written = isJsonList(value) ? value.map((item) => (isJsonObject(item) ? replyItem(item) : item)) : value
  return JSON.stringify(isJsonObject(written) ? replyItem(written) : written)
}
