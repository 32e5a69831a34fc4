import type { ContentPart } from '../../schema/index.ts'
import { formatBytes } from '../format/bytes.ts'
import { printable } from '../format/printable.ts'

const dataUrl = /^data:([^;,]+);base64,/

/** A tool's answer for a terminal: text unchanged, anything else described. */
export function answerText(content: string | readonly ContentPart[]): string {
  if (typeof content === 'string') return printable(content)
  return content.map(partText).join('\n')
}

function partText(part: ContentPart): string {
  if (part.type === 'text') return printable(part.text)
  if (part.type === 'other') return `[${printable(JSON.stringify(part.value))}]`
  const { url } = part.image_url
  const [head, type] = dataUrl.exec(url) ?? []
  if (head === undefined || type === undefined) return `[image at ${printable(url)}]`
  return `[image ${printable(type)}, ${formatBytes(Math.floor(((url.length - head.length) * 3) / 4))}]`
}
