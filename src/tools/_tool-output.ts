import type { ContentPart } from '../schema/index.ts'

/** How much of one call's output a model is shown: longer outputs fill the context with text that nobody reads. */
export const maxOutputChars = 256 * 1024

/** An image comes as one URL that cannot be cut; servers refuse longer ones than this. */
export const maxImageChars = 20 * 1024 * 1024

/** A tool's output as the content of its message. Throws where the output is not JSON (a bigint, a cycle). */
export function contentOf(output: unknown, limit = maxOutputChars): string | readonly ContentPart[] {
  if (typeof output === 'string') return cut(output, limit)
  if (output === undefined) return ''
  if (isContentParts(output)) return cutParts(output, limit)
  return cut(JSON.stringify(output) ?? '', limit)
}

function cut(text: string, limit: number): string {
  if (text.length <= limit) return text
  // Does not cut between the two halves of a surrogate pair.
  const code = text.charCodeAt(limit - 1)
  const end = code >= 0xd800 && code <= 0xdbff ? limit - 1 : limit
  return `${text.slice(0, end)}\n[${text.length - end} of ${text.length} characters were cut off]`
}

function cutParts(parts: readonly ContentPart[], limit: number): readonly ContentPart[] {
  let left = limit
  let changed = false
  const kept = parts.map((part): ContentPart => {
    if (part.type === 'text') {
      const text = cut(part.text, left)
      left = Math.max(0, left - part.text.length)
      if (text === part.text) return part
      changed = true
      return { type: 'text', text }
    }
    if (part.type === 'other' || part.image_url.url.length <= maxImageChars) return part
    changed = true
    return { type: 'text', text: `[an image of ${part.image_url.url.length} characters was left out: too large]` }
  })
  return changed ? kept : parts
}

function isContentParts(output: unknown): output is readonly ContentPart[] {
  return Array.isArray(output) && output.length > 0 && output.every(isContentPart)
}

function isContentPart(part: unknown): part is ContentPart {
  if (typeof part !== 'object' || part === null || !('type' in part)) return false
  if (part.type === 'text') return 'text' in part && typeof part.text === 'string'
  if (part.type !== 'image_url' || !('image_url' in part)) return false
  const image = part.image_url
  return typeof image === 'object' && image !== null && 'url' in image && typeof image.url === 'string'
}
