import { skipSpace } from './_skip.ts'

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
    if (mayClose && char === closer) {
      closers.pop()
      at += 1
      expected = 'comma'
    } else if (expected === 'value') {
      if (char === '{' || char === '[') {
        closers.push(char === '{' ? '}' : ']')
        expected = char === '{' ? 'key' : 'value'
        mayClose = true
        at += 1
        continue
      }
      at = char === '"' ? stringEnd(text, at) : literalEnd(text, at)
      expected = 'comma'
    } else if (expected === 'key') {
      at = char === '"' ? stringEnd(text, at) : -1
      expected = 'colon'
    } else {
      const isThere = char === (expected === 'colon' ? ':' : ',')
      at = isThere ? at + 1 : -1
      expected = expected === 'comma' && closer === '}' ? 'key' : 'value'
    }
    if (at === -1) return -1
    if (closers.length === 0) return at
    // A bracket may close anywhere but around a colon. A comma before it is a common slip that is easily repaired.
    mayClose = expected === 'comma' || char === ','
  }
}

/** The place behind the closing quote of the string that opens at `start`; -1 if it has none. */
function stringEnd(text: string, start: number): number {
  for (let at = start + 1; at < text.length; at += 1) {
    const code = text.charCodeAt(at)
    if (code === 0x5c) at += 1
    else if (code === 0x22) return at + 1
  }
  return -1
}

function literalEnd(text: string, start: number): number {
  let at = start
  while (isLiteralCode(text.charCodeAt(at))) at += 1
  return at === start ? -1 : at
}

/** The characters of numbers and of words such as `true`: letters, digits, `+`, `-` and `.`. */
function isLiteralCode(code: number): boolean {
  return (
    (code >= 0x61 && code <= 0x7a) ||
    (code >= 0x41 && code <= 0x5a) ||
    (code >= 0x30 && code <= 0x39) ||
    code === 0x2b ||
    code === 0x2d ||
    code === 0x2e
  )
}
