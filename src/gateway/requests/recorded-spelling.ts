import {
  elementsEnd,
  membersEnd,
  nonSpace,
  notWalkable,
  openBrace,
  openBracket,
  quote,
  valueEnd,
} from '../../kit/index.ts'
import type { ApiName, Message, ToolCall } from '../../schema/index.ts'

interface Spellings {
  readonly sent: readonly Message[]
  readonly recorded: readonly Message[]
}

interface ByteRange {
  readonly start: number
  readonly end: number
}

/** The body with its tool calls' arguments in their recorded spelling; as it is, if its calls are not those of `sent`. */
export function bodyInRecordedSpelling(body: Buffer, api: ApiName, { sent, recorded }: Spellings): Buffer {
  const ranges = argumentRanges(body, api)
  const before = callsOf(sent)
  const after = callsOf(recorded)
  if (ranges?.length !== before.length || before.length !== after.length) return body
  const pieces: Buffer[] = []
  let end = 0
  for (const [index, range] of ranges.entries()) {
    const text = after[index]?.function.arguments ?? ''
    if (text === before[index]?.function.arguments) continue
    // Messages has the arguments as an object, the others as the text of one.
    const written = api === 'messages' ? text || '{}' : JSON.stringify(text)
    pieces.push(body.subarray(end, range.start), Buffer.from(written))
    end = range.end
  }
  return Buffer.concat([...pieces, body.subarray(end)])
}

function callsOf(messages: readonly Message[]): ToolCall[] {
  return messages.flatMap((message) => (message.role === 'assistant' ? (message.tool_calls ?? []) : []))
}

/** The arguments of all calls of functions in a body, in order. Undefined for a body that is not plain enough to be walked over. */
function argumentRanges(bytes: Buffer, api: ApiName): ByteRange[] | undefined {
  const ranges: ByteRange[] = []
  const add = (range: ByteRange | undefined): void => {
    if (range) ranges.push(range)
  }
  try {
    const body = membersOf(bytes, nonSpace(bytes, 0))
    for (const message of elementsOf(bytes, body.get(api === 'responses' ? 'input' : 'messages'))) {
      const members = membersOf(bytes, message.start)
      if (api === 'responses') {
        if (textAt(bytes, members.get('type')) === 'function_call') add(members.get('arguments'))
      } else if (api === 'chat') {
        for (const call of elementsOf(bytes, members.get('tool_calls'))) {
          const { start } = membersOf(bytes, call.start).get('function') ?? {}
          if (start !== undefined) add(membersOf(bytes, start).get('arguments'))
        }
      } else {
        for (const block of elementsOf(bytes, members.get('content'))) {
          const parts = membersOf(bytes, block.start)
          if (textAt(bytes, parts.get('type')) === 'tool_use') add(parts.get('input'))
        }
      }
    }
  } catch (error) {
    if (error !== notWalkable) throw error
    return undefined
  }
  return ranges
}

/** The members of the object that begins here, by name; of several with one name, the last. None if it is no object. */
function membersOf(bytes: Buffer, at: number): Map<string, ByteRange> {
  const members = new Map<string, ByteRange>()
  if (bytes[at] !== openBrace) return members
  membersEnd(bytes, at, (keyAt, start) => {
    const end = valueEnd(bytes, start)
    members.set(parsed(bytes, { start: keyAt, end: bytes.lastIndexOf(quote, start - 1) + 1 }), { start, end })
    return end
  })
  return members
}

function elementsOf(bytes: Buffer, list: ByteRange | undefined): ByteRange[] {
  const elements: ByteRange[] = []
  if (!list || bytes[list.start] !== openBracket) return elements
  elementsEnd(bytes, list.start, (start) => {
    const end = valueEnd(bytes, start)
    elements.push({ start, end })
    return end
  })
  return elements
}

function textAt(bytes: Buffer, range: ByteRange | undefined): string | undefined {
  return range && bytes[range.start] === quote ? parsed(bytes, range) : undefined
}

function parsed(bytes: Buffer, { start, end }: ByteRange): string {
  return String(JSON.parse(bytes.toString('utf8', start, end)))
}
