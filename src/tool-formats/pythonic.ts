import { endOf, skipFence, skipSpace } from './json-calls.ts'
import { type PythonValue, quoteAt, readPythonString, readPythonValue } from './python-values.ts'
import { readReply, type Reply } from './read-reply.ts'
import { type FoundCall, toolFormat, toolLines } from './tool-format.ts'

/** Tags that Llama 4 and others put around their lists. */
const tagNames = ['|python_start|', '|python_end|', '|python_tag|', '|eom_id|', '|eot_id|', '|eot|']

/** Calls as a list in Python: `[search(query="x"), now()]`. Their arguments are read as Python and passed on as JSON. */
export const pythonic = toolFormat({
  name: 'pythonic',
  describe: (tools) => `# Tools

These functions are yours to use, one on each line, with a JSON Schema for its parameters:

${toolLines(tools)}

To call some, reply with nothing but a list of calls in Python, with keyword arguments that are literals:

[function(parameter="value"), other_function(first=1, second=[True, None])]

A parameter whose name is no Python name goes into a dict: function(**{"the-name": "value"}). The results come with the next message. A reply that is no such list ends the task.`,
  find: (text) => readReply(text, tagNames, { atLine }),
  result: ({ function: { name } }, text, isError) => `${name} ${isError ? 'failed' : 'returned'}:\n${text}`,
})

/** Lists count only at the beginning of a line: elsewhere a bracket is more likely part of a sentence. */
function atLine(at: number, { text, tags, found }: Reply): number {
  const start = skipFence(text, at)
  return startsCallList(text, start) ? readCallList(text, start, tags.limit(start), found) : at
}

/** Whether a list of calls starts at `at`: a bracket, a name, and a parenthesis with something that can be an argument. */
function startsCallList(text: string, at: number): boolean {
  if (text[at] !== '[') return false
  const nameStart = skipSpace(text, at + 1)
  const nameEnd = endOfName(text, nameStart)
  const open = skipSpace(text, nameEnd)
  if (nameEnd === nameStart || text[open] !== '(') return false
  const first = skipSpace(text, open + 1)
  if (first >= text.length || quoteAt(text, first) !== -1 || ')*-{[('.includes(text.charAt(first))) return true
  const parameterEnd = endOfName(text, first)
  const behind = skipSpace(text, parameterEnd)
  return parameterEnd > first && (behind >= text.length || text[behind] === '=')
}

/** Reads a list of calls, the last perhaps cut off. A broken call ends with its parentheses, or at `limit`. */
function readCallList(text: string, start: number, limit: number, found: FoundCall[]): number {
  let at = start + 1
  for (;;) {
    at = skipSpace(text, at)
    const nameEnd = endOfName(text, at)
    const open = skipSpace(text, nameEnd)
    if (nameEnd === at || text[open] !== '(') return text[at] === ']' ? at + 1 : at
    const name = text.slice(at, nameEnd)
    const args = readArguments(text, open)
    if (args.json === undefined) {
      const close = endOfParenthesis(text, open, limit)
      found.push({ name, arguments: rawArguments(text.slice(open + 1, close.end), close.isThere) })
      if (!close.isThere) return close.end
      at = close.end + 1
    } else {
      found.push({ name, arguments: args.json })
      at = args.end
    }
    at = skipSpace(text, at)
    if (text[at] === ',') at += 1
  }
}

/** Arguments such as `(a=1, **{"b": 2})` as JSON. */
function readArguments(text: string, open: number): PythonValue {
  const members: string[] = []
  let at = open + 1
  for (;;) {
    at = skipSpace(text, at)
    if (text[at] === ')') return { json: `{${members.join(',')}}`, end: at + 1 }
    const isSpread = text.startsWith('**', at)
    const nameEnd = isSpread ? at + 2 : endOfName(text, at)
    const equals = isSpread ? at + 1 : skipSpace(text, nameEnd)
    if (nameEnd === at || (!isSpread && text[equals] !== '=')) return { json: undefined, end: at }
    const value = readPythonValue(text, equals + 1, startsCallList)
    if (value.json === undefined) return value
    if (!isSpread) members.push(`${JSON.stringify(text.slice(at, nameEnd))}:${value.json}`)
    else if (!value.json.startsWith('{')) return { json: undefined, end: at }
    else if (value.json !== '{}') members.push(value.json.slice(1, -1))
    at = skipSpace(text, value.end)
    if (text[at] === ',') at += 1
    else if (text[at] !== ')') return { json: undefined, end: at }
  }
}

/** The parenthesis that closes the one at `open`, whatever stands between; else the next list of calls, or the limit. */
function endOfParenthesis(text: string, open: number, limit: number): { end: number; isThere: boolean } {
  let depth = 0
  let at = open
  while (at < limit) {
    const char = text[at]
    if (char === '"' || char === "'") {
      const read = readPythonString(text, at, startsCallList)
      if (typeof read === 'number') break
      at = read.end
      continue
    }
    if (char === '(' || char === '[' || char === '{') depth += 1
    // Skips escapes as within strings, so that a quote which opens a string here would have closed any that was open.
    else if (char === '\\' && text[at + 1] !== '\n') at += 1
    else if (char === ')' || char === ']' || char === '}') {
      depth -= 1
      if (depth === 0) return { end: at, isThere: true }
    } else if (char === '\n') {
      at = skipSpace(text, at)
      if (startsCallList(text, at)) break
      continue
    }
    at += 1
  }
  return { end: nextCallList(text, at, limit), isThere: false }
}

function nextCallList(text: string, from: number, limit: number): number {
  let at = from
  while (at < limit) {
    if (startsCallList(text, at)) return at
    while (at < limit && text[at] !== '\n') at += 1
    at = skipSpace(text, at)
  }
  return limit
}

/** If the closing parenthesis was lost, the brackets at the end belong to the call and the list. */
function rawArguments(written: string, isComplete: boolean): string {
  const raw = written.trim()
  if (isComplete) return raw
  const unlisted = raw.endsWith(']') ? raw.slice(0, -1).trimEnd() : raw
  return unlisted.endsWith(')') ? unlisted.slice(0, -1).trimEnd() : unlisted
}

/** Names of tools have dashes and dots, and names of parameters have letters of any alphabet. No name is longer than 128. */
function endOfName(text: string, start: number): number {
  return endOf(/[\w.\u{aa}-\u{10ffff}-]{0,128}/uy, text, start)
}
