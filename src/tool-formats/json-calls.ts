import type { FoundCall } from './tool-format.ts'

/** A call written as an object: `{"name": …, "arguments": …}`, or with `parameters`. */
interface CallObject {
  readonly name: string | undefined
  readonly arguments: string | undefined
  readonly end: number
}

/** Loose on purpose: quotes of both kinds, unescaped quotes in strings, missing brackets. Valid JSON is read as JSON. */
export function readCallObject(text: string, start: number, limit: number): CallObject {
  let name: string | undefined
  let args: string | undefined
  let parameters: string | undefined
  let inner: CallObject | undefined
  const end = eachMember(text, start, limit, (key, from, to) => {
    if (key === 'name') name = stringAt(text, from, to) ?? name
    else if (key === 'arguments') args = text.slice(from, to).trim()
    else if (key === 'parameters') parameters = text.slice(from, to).trim()
    else if (key !== 'function') return
    // `{"type": "function", "function": {"name": …}}`, as APIs write it, or just the name.
    else if (text[from] === '{') inner = readFunction(text, from, to)
    else name ??= stringAt(text, from, to)
  })
  return { name: name ?? inner?.name, arguments: args ?? parameters ?? inner?.arguments, end }
}

/** The call that an object describes. One without name and arguments is shown whole, for a reader to find out what was meant. */
export function callOf({ name, arguments: args, end }: CallObject, text: string, start: number): FoundCall {
  const isNothing = name === undefined && args === undefined
  return { name: name ?? '', arguments: args ?? (isNothing ? text.slice(start, end).trim() : '') }
}

function readFunction(text: string, start: number, limit: number): CallObject {
  let name: string | undefined
  let args: string | undefined
  const end = eachMember(text, start, limit, (key, from, to) => {
    if (key === 'name') name = stringAt(text, from, to)
    else if (key === 'arguments' || key === 'parameters') args = text.slice(from, to).trim()
  })
  return { name, arguments: args, end }
}

type OnMember = (key: string, from: number, to: number) => void

/** Calls back for every member of the object itself; returns the place behind the object, or `limit` if it does not end. */
function eachMember(text: string, start: number, limit: number, onMember: OnMember): number {
  let at = start + 1
  for (;;) {
    at = endOf(/[\s,]*/y, text, at)
    if (at >= limit) return limit
    if (text[at] === '}') return at + 1
    const keyStart = at
    at = isQuote(text[at]) ? looseStringEnd(text, at, limit) : bareKeyEnd(text, at, limit)
    const key = stringAt(text, keyStart, at) ?? text.slice(keyStart, at).trim()
    at = skipSpace(text, at)
    if (at >= limit || text[at] !== ':') return limit
    const from = Math.min(skipSpace(text, at + 1), limit)
    at = looseValueEnd(text, from, limit)
    onMember(key, from, at)
  }
}

function bareKeyEnd(text: string, start: number, limit: number): number {
  let at = start
  while (at < limit && text[at] !== ':' && text[at] !== '}') at += 1
  return at
}

/** The place behind the value that starts at `start`: behind its bracket or quote, or before the next comma or bracket. */
function looseValueEnd(text: string, start: number, limit: number): number {
  let depth = 0
  // A quote opens a string only where a value may start: elsewhere it is an apostrophe, or not worth a guess.
  let mayOpen = true
  let at = start
  while (at < limit) {
    const char = text[at]
    if (mayOpen && isQuote(char)) {
      at = looseStringEnd(text, at, limit)
      if (depth === 0) return at
      mayOpen = false
      continue
    }
    if (char === '{' || char === '[') depth += 1
    else if (char === '}' || char === ']') {
      if (depth === 0) return at
      depth -= 1
      if (depth === 0) return at + 1
    } else if (char === ',' && depth === 0) return at
    if (!isSpace(char)) mayOpen = char === '{' || char === '[' || char === ',' || char === ':'
    at += 1
  }
  return limit
}

/** The place behind a string. A quote closes it if the text after it can follow a string; any other quote is part of it. */
function looseStringEnd(text: string, start: number, limit: number): number {
  const quote = text[start]
  for (let at = start + 1; at < limit; at += 1) {
    if (text[at] === '\\') at += 1
    else if (text[at] === quote) {
      const next = skipSpace(text, at + 1)
      if (next >= limit || ',:}]'.includes(text.charAt(next))) return at + 1
    }
  }
  return limit
}

function stringAt(text: string, from: number, to: number): string | undefined {
  const quote = text[from]
  if (!isQuote(quote)) return undefined
  const literal = text.slice(from, to)
  const isClosed = literal.length > 1 && literal.endsWith(quote)
  if (quote === '"' && isClosed) {
    try {
      const value: unknown = JSON.parse(literal)
      if (typeof value === 'string') return value
    } catch {
      // Not JSON: the text between the quotes is taken as it is.
    }
  }
  return literal.slice(1, isClosed ? -1 : undefined)
}

function isQuote(char: string | undefined): char is '"' | "'" {
  return char === '"' || char === "'"
}

type Expected = 'value' | 'key' | 'colon' | 'comma'

/**
 * The place behind the JSON value that starts at `start`, or -1 if no whole value does. It checks how values follow each other
 * and not what is in them: `True`, a line break in a string or a comma before a bracket pass, since those are repaired later. A
 * character that cannot be part of JSON outside of a string, such as `<`, `;` and `\`, always ends the search.
 *
 * That is why a format may try this at each of its marks, though a failed try reads far and the next one starts all over: a try
 * that gets past a mark is within a string there. A second try that starts at the mark is outside of one, and from then on every
 * quote opens a string for one and closes it for the other; at any later mark, one of them is outside and ends. So no place is
 * read by more than two tries.
 */
export function jsonEnd(text: string, start: number): number {
  const closers: ('}' | ']')[] = []
  let expected: Expected = 'value'
  let mayClose = false
  let at = start
  for (;;) {
    at = skipSpace(text, at)
    const char = text[at]
    const closer = closers.at(-1)
    let end = at
    if (mayClose && char === closer) {
      closers.pop()
      end += 1
      expected = 'comma'
    } else if (expected === 'value' && (char === '{' || char === '[')) {
      closers.push(char === '{' ? '}' : ']')
      expected = char === '{' ? 'key' : 'value'
      mayClose = true
      at += 1
      continue
    } else if (expected === 'value') {
      end = char === '"' ? stringEnd(text, at) : endOf(/[a-zA-Z0-9+.-]*/y, text, at)
      expected = 'comma'
    } else if (expected === 'key') {
      if (char === '"') end = stringEnd(text, at)
      expected = 'colon'
    } else {
      if (char === (expected === 'colon' ? ':' : ',')) end += 1
      expected = expected === 'comma' && closer === '}' ? 'key' : 'value'
    }
    if (end === at) return -1
    at = end
    if (closers.length === 0) return at
    // A bracket may close anywhere but around a colon. A comma before it is a common slip that is easily repaired.
    mayClose = expected === 'comma' || char === ','
  }
}

/** The place behind the closing quote of the string that opens at `start`; `start` if it has none. */
function stringEnd(text: string, start: number): number {
  for (let at = start + 1; at < text.length; at += 1) {
    if (text[at] === '\\') at += 1
    else if (text[at] === '"') return at + 1
  }
  return start
}

/** The place behind what a sticky pattern matches at `at`; `at` itself if it matches nothing there. */
export function endOf(pattern: RegExp, text: string, at: number): number {
  pattern.lastIndex = at
  return pattern.test(text) ? pattern.lastIndex : at
}

export function skipSpace(text: string, at: number): number {
  return endOf(/\s*/y, text, at)
}

function isSpace(char: string | undefined): boolean {
  return char !== undefined && /\s/.test(char)
}

export function isFence(text: string, at: number): boolean {
  return text.startsWith('```', at)
}

/** The place where the content of a code fence at `at` starts; `at` itself if there is no fence. */
export function skipFence(text: string, at: number): number {
  return endOf(/```\w*\s*/y, text, at)
}

/** The place where an object at `at` starts, perhaps in a code fence and as the first of a list. */
export function objectStart(text: string, at: number): number {
  return endOf(/(?:```\w*\s*)?(?:\[\s*)?/y, text, at)
}

/** Skips what may stand between two objects, including a bracket too many. */
export function skipSeparators(text: string, at: number): number {
  return endOf(/[\s;,}]*/y, text, at)
}
