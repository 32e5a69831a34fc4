import type { JsonObject } from '../../schema/index.ts'
import { isObject } from './foreign-json.ts'

/** What a model of Mistral's thought, which is a part of its content, before the text. Undefined if it is another part. */
export function thoughtIn(part: unknown): string | undefined {
  const { type, thinking }: { type?: unknown; thinking?: unknown } = isObject(part) ? part : {}
  if (type !== 'thinking') return undefined
  if (typeof thinking === 'string') return thinking
  return Array.isArray(thinking) ? thinking.map((each) => textIn(each) ?? '').join('') : ''
}

/** What a part of a content says as text, if it does. */
export function textIn(part: unknown): string | undefined {
  return isObject(part) && 'text' in part && typeof part.text === 'string' ? part.text : undefined
}

/** A content in which the thought stands where Mistral puts it. */
export function thoughtfulContent(thought: string, text: string | null): JsonObject[] {
  const thinking = { type: 'thinking', thinking: [{ type: 'text', text: thought }] }
  return text === null ? [thinking] : [thinking, { type: 'text', text }]
}
