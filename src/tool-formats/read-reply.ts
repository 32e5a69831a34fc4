import { jsonEnd, skipSpace } from './json-calls.ts'
import type { FoundCall, FoundCalls } from './tool-format.ts'

const reasoningTags: ReadonlySet<string> = new Set(['think', 'thinking'])

/** How a format reads a reply. Both methods return the place to go on from, never one before where they were called. */
interface ReplyReader {
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
export function readReply(text: string, tagNames: readonly string[], reader: ReplyReader): FoundCalls {
  const tags = new TagCursor(text, [...reasoningTags, ...tagNames])
  const reply: Reply = { text, tags, found: [] }
  let isThinking = false
  /** Whether there was only white space since the beginning, or since the last thought. */
  let isOpening = true
  let at = 0
  let start = text.length
  const noteCall = (place: number): void => {
    if (start === text.length && reply.found.length > 0) start = place
  }
  while (at < text.length) {
    if (reader.atLine && !isThinking) {
      at = skipSpace(text, at)
      const end = reader.atLine(at, reply, isOpening)
      noteCall(at)
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
      if (tag.isClosing) {
        reply.found.length = 0
        start = text.length
      }
    } else if (!isThinking && reader.atTag) {
      at = reader.atTag(tag, reply)
      noteCall(tag.start)
    }
  }
  return { calls: reply.found, start }
}

function endOfLine(text: string, at: number, limit: number): number {
  const end = text.slice(at, limit).indexOf('\n')
  return end === -1 ? limit : at + end + 1
}

/** The text up to its closing tag or, where that was forgotten, the next tag. Tags in the strings of a JSON value are text. */
export function taggedBody({ text, tags }: Reply, from: number): { readonly text: string; readonly end: number } {
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

/** `<name>`, `</name>` or `<name=value>`, where the name may have bars around it: `<|name|>`. */
export interface Tag {
  readonly name: string
  readonly isClosing: boolean
  readonly value: string
  readonly start: number
  readonly end: number
}

/** A name has at most 32 characters. Nothing is read beyond the next `<`, so that a row of half tags is read once. */
const tagPattern = /<(\/?)([\w|]{1,32})(?:=([^<>\n]*)(?=[>\n]))?\s*>/y

/** Finds tags by name, in any case. Remembers the last one, so that formats which look ahead from every line stay linear. */
class TagCursor {
  readonly #text: string
  readonly #names: ReadonlySet<string>
  #askedFrom = 0
  #found: Tag | undefined
  /** Between `#askedFrom` and this place there is no tag but `#found`. */
  #seenTo = -1

  constructor(text: string, names: Iterable<string>) {
    this.#text = text
    this.#names = new Set(names)
  }

  next(from: number): Tag | undefined {
    if (from < this.#askedFrom || from > this.#seenTo) {
      this.#found = this.#search(from)
      this.#askedFrom = from
      this.#seenTo = this.#found?.start ?? this.#text.length
    }
    return this.#found
  }

  /** Where the next tag starts; the end of the text if there is none. */
  limit(from: number): number {
    return this.next(from)?.start ?? this.#text.length
  }

  #search(from: number): Tag | undefined {
    for (let start = this.#text.indexOf('<', from); start !== -1; start = this.#text.indexOf('<', start + 1)) {
      tagPattern.lastIndex = start
      const [whole, slash, written, value = ''] = tagPattern.exec(this.#text) ?? []
      const name = written?.toLowerCase()
      if (whole === undefined || name === undefined || !this.#names.has(name)) continue
      return { name, isClosing: slash === '/', value: value.trim(), start, end: start + whole.length }
    }
    return undefined
  }
}
