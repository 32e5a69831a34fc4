import type { ContentPart } from '../schema/index.ts'

/**
 * Content in the one form for its meaning: a single text is a string, however it was sent. Several texts stay separate,
 * because servers differ in how they join them.
 */
export function contentOf(parts: readonly ContentPart[]): string | readonly ContentPart[] {
  const [first] = parts
  if (first === undefined) return ''
  return parts.length === 1 && first.type === 'text' ? first.text : parts
}

/** A part with an image. `auto` means the same as no detail. Undefined if the detail is unknown. */
export function imagePart(url: string, detail?: string): ContentPart | undefined {
  if (detail === undefined || detail === 'auto') return { type: 'image_url', image_url: { url } }
  if (detail === 'low' || detail === 'high') return { type: 'image_url', image_url: { url, detail } }
  return undefined
}
