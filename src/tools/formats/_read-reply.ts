import type { FoundCall } from './_found-call.ts'
import { skipSpace } from './_skip.ts'
import { TagCursor, type Tag } from './_tag-cursor.ts'

const reasoningTags: ReadonlySet<string> = new Set(['think', 'thinking'])

/** How a format reads a reply. Both methods return the place to go on from, never one before where they were called. */
export interface ReplyReader {
  /** Called at a tag of the format's own. */
  readonly atTag?: (tag: Tag, reply: Reply) => number
  /** Called at the first character of a line, or after a tag. Returns `at` if no call of the format starts there. */
  readonly atLine?: (at: number, reply: Reply, isOpening: boolean) => number
}

export interface Reply {
  readonly text: string
  readonly tags: TagCursor
  readonly found: FoundCall[]
}

/**
 * The calls of a reply, outside of its reasoning: nothing counts before the end of a thought, whose beginning may have been part
 * of the prompt, nor after the beginning of a thought that never ends. The reader steps over whole calls, so a tag within an
 * argument that looks like the end of a thought is not taken for one.
 */
export function readReply(text: string, tagNames: readonly string[], reader: ReplyReader): readonly FoundCall[] {
  const tags = new TagCursor(text, [...reasoningTags, ...tagNames])
  const reply: Reply = { text, tags, found: [] }
  let isThinking = false
  /** Whether there was only white space since the beginning, or since the last thought. */
  let isOpening = true
  let at = 0
  while (at < text.length) {
    if (reader.atLine && !isThinking) {
      at = skipSpace(text, at)
      const end = reader.atLine(at, reply, isOpening)
      isOpening = false
      at = end > at ? end : endOfLine(text, at, tags.limit(at))
    }
    const tag = tags.next(at)
    // If the line has no tag left, the next line comes next.
    if (reader.atLine && !isThinking && at < (tag?.start ?? text.length)) continue
    if (!tag) break
    at = tag.end
    if (reasoningTags.has(tag.name)) {
      isThinking = !tag.isClosing
      isOpening = true
      if (tag.isClosing) reply.found.length = 0
    } else if (!isThinking && reader.atTag) {
      at = reader.atTag(tag, reply)
    }
  }
  return reply.found
}

/** The place behind the end of the line, but not behind `limit`. */
function endOfLine(text: string, at: number, limit: number): number {
  for (let end = at; end < limit; end += 1) if (text.charCodeAt(end) === 0x0a) return end + 1
  return limit
}
