import type { ContentPart } from '../schema/index.ts'

/**
 * Content in the one form that stands for its meaning: a text alone is a string, however it was sent. Several texts stay
 * apart, because servers differ in how they join them.
 */
export function contentOf(parts: readonly ContentPart[]): string | readonly ContentPart[] {
  const [first] = parts
  if (first === undefined) return ''
  return parts.length === 1 && first.type === 'text' ? first.text : parts
}

/** `auto` is what no detail means. One that we do not know gives undefined. */
export function imagePart(url: string, detail?: string): ContentPart | undefined {
  if (detail === undefined || detail === 'auto') return { type: 'image_url', image_url: { url } }
  if (detail === 'low' || detail === 'high') return { type: 'image_url', image_url: { url, detail } }
  return undefined
}
