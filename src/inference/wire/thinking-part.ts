import type { JsonObject } from '../../schema/index.ts'
import { isObject } from './foreign-json.ts'

/** The reasoning in a part of Mistral's content, where it comes before the text. Undefined for other parts. */
export function thoughtIn(part: unknown): string | undefined {
  const { type, thinking }: { type?: unknown; thinking?: unknown } = isObject(part) ? part : {}
  if (type !== 'thinking') return undefined
  if (typeof thinking === 'string') return thinking
  return Array.isArray(thinking) ? thinking.map((each) => textIn(each) ?? '').join('') : ''
}

/** The text of a part of a content, if it has one. */
export function textIn(part: unknown): string | undefined {
  return isObject(part) && 'text' in part && typeof part.text === 'string' ? part.text : undefined
}

/** A content with the reasoning as its first part, as Mistral has it. */
export function thoughtfulContent(thought: string, text: string | null): JsonObject[] {
  const thinking = { type: 'thinking', thinking: [{ type: 'text', text: thought }] }
  return text === null ? [thinking] : [thinking, { type: 'text', text }]
}
