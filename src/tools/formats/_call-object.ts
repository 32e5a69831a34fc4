import type { FoundCall } from './_found-call.ts'
import { isSpace, skipSpace } from './_skip.ts'

/** A call written as an object: `{"name": …, "arguments": …}`, or with `parameters`. */
export interface CallObject {
  readonly name: string | undefined
  /** The text of the arguments, as written. */
  readonly arguments: string | undefined
  /** The place behind the object. */
  readonly end: number
}

/**
 * Reads the object that opens at `start` as far as it can be read, and not beyond `limit`. Loose on purpose: quotes of both
 * kinds, quotes within a string that should have been escaped, missing brackets. Valid JSON is read as JSON.
 */
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

/**
 * The call that an object describes. An object without name and arguments is shown whole, so that a reader can find out what was
 * meant.
 */
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
    while (at < limit && (isSpace(text.charCodeAt(at)) || text[at] === ',')) at += 1
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
    if (!isSpace(text.charCodeAt(at))) mayOpen = char === '{' || char === '[' || char === ',' || char === ':'
    at += 1
  }
  return limit
}

/**
 * The place behind the string that opens at `start`. A quote closes the string if the text after it can follow a string; any
 * other quote was meant as part of it.
 */
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

/** The content of the string between two places; undefined if there is none. */
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
