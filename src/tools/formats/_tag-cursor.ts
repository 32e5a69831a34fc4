import { isSpace, isWordCode } from './_skip.ts'

/** `<name>`, `</name>` or `<name=value>`, where the name may have bars around it: `<|name|>`. */
export interface Tag {
  /** The name in lower case. */
  readonly name: string
  readonly isClosing: boolean
  readonly value: string
  readonly start: number
  readonly end: number
}

/** Longer than any name that is searched for. */
const maxNameChars = 32

/**
 * Finds tags of the given names, in any case. It remembers the tag it found last, so that asking again from a place before it
 * costs nothing: a format that looks ahead from every line stays linear.
 */
export class TagCursor {
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

  /** The first tag that starts at `from` or after it. */
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
    let start = this.#text.indexOf('<', from)
    while (start !== -1) {
      const tag = this.#tagAt(start)
      if (tag) return tag
      start = this.#text.indexOf('<', start + 1)
    }
    return undefined
  }

  /** Reads no further than the next `<`, so that a row of half tags is read once. */
  #tagAt(start: number): Tag | undefined {
    const text = this.#text
    const isClosing = text.charCodeAt(start + 1) === 0x2f
    const nameStart = isClosing ? start + 2 : start + 1
    let at = nameStart
    while (isNameCode(text.charCodeAt(at)) && at - nameStart < maxNameChars) at += 1
    const name = text.slice(nameStart, at).toLowerCase()
    if (!this.#names.has(name)) return undefined
    let value = ''
    if (text[at] === '=') {
      const valueStart = at + 1
      while (at < text.length && !endsValue(text.charCodeAt(at))) at += 1
      value = text.slice(valueStart, at).trim()
    }
    while (isSpace(text.charCodeAt(at))) at += 1
    return text[at] === '>' ? { name, isClosing, value, start, end: at + 1 } : undefined
  }
}

function isNameCode(code: number): boolean {
  return isWordCode(code) || code === 0x7c
}

/** `<`, `>` or the end of the line. */
function endsValue(code: number): boolean {
  return code === 0x3c || code === 0x3e || code === 0x0a
}
