import { isJsonList, isJsonObject, type Json, type JsonObject } from '../../schema/index.ts'
import type { MessagePlace } from './_fits-message.ts'

/** The place of our own message that holds all of an item; undefined if none does. */
export function itemPlace(item: JsonObject): MessagePlace | undefined {
  const { type, content } = item
  if (type === 'reasoning') return isPlainReasoning(item) ? 'thought' : undefined
  if (type === 'message') return partsOf(content).every(isPlainPart) ? 'text' : undefined
  return type === 'function_call' ? 'call' : undefined
}

function isPlainReasoning({ content, summary, encrypted_content: encrypted }: JsonObject): boolean {
  return typeof encrypted !== 'string' && partsOf(content).length + partsOf(summary).length <= 1
}

function isPlainPart(part: Json): boolean {
  if (!isJsonObject(part)) return false
  return part['type'] === 'refusal' || (part['type'] === 'output_text' && partsOf(part['annotations']).length === 0)
}

function partsOf(value: Json | undefined): readonly Json[] {
  return isJsonList(value) ? value : []
}
