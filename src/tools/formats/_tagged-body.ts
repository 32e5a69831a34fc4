import { jsonEnd } from './_json-end.ts'
import type { Reply } from './_read-reply.ts'
import { skipSpace } from './_skip.ts'

export interface TaggedBody {
  readonly text: string
  /** The start of the tag that ends the body, or the end of the reply. */
  readonly end: number
}

/**
 * The text between an opening tag and the tag that ends it: its own closing tag or, where that was forgotten, the next tag. Tags
 * in the strings of a JSON value are text.
 */
export function taggedBody({ text, tags }: Reply, from: number): TaggedBody {
  const start = skipSpace(text, from)
  const valueEnd = text[start] === '{' || text[start] === '[' ? jsonEnd(text, start) : -1
  if (valueEnd === -1) {
    const end = tags.limit(from)
    return { text: text.slice(start, end).trim(), end }
  }
  const closing = tags.next(valueEnd)
  const end = closing?.start ?? text.length
  // Without a closing tag, text after the value does not count as part of it.
  return { text: closing?.isClosing ? text.slice(start, end).trim() : text.slice(start, valueEnd), end }
}
