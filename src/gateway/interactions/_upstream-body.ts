import { membersEnd, nonSpace, quote, valueEnd } from '../../kit/index.ts'
import type { JsonObject } from '../../schema/index.ts'

export interface ClientBody {
  readonly bytes: Buffer
  /** The members of the body; messages that were read before may be missing. */
  readonly members: JsonObject
}

/**
 * A client's body as the backend gets it: the same bytes, with `fields` in it. Fields that the client did not write are put
 * in at the head; only fields that replace the client's own make it necessary to walk over the body, which is an object.
 */
export function upstreamBody({ bytes, members }: ClientBody, fields: JsonObject): Buffer {
  if (Object.keys(members).length === 0) return Buffer.from(JSON.stringify(fields))
  let head = ''
  let rest = bytes
  for (const [name, value] of Object.entries(fields)) {
    if (members[name] === value) continue
    if (!Object.hasOwn(members, name)) {
      head += `${JSON.stringify(name)}:${JSON.stringify(value)},`
      continue
    }
    const replaced = typeof value === 'string' ? withText(rest, name, value) : undefined
    if (!replaced) return withFields(rest, fields)
    rest = replaced
  }
  if (head === '') return rest
  const start = rest.indexOf('{') + 1
  return Buffer.concat([rest.subarray(0, start), Buffer.from(head), rest.subarray(start)])
}

/** The body with `fields` in place of members of the same name, undefined ones left out. Other members keep their bytes. */
function withFields(bytes: Buffer, fields: JsonObject): Buffer {
  const members: Buffer[] = []
  membersEnd(bytes, nonSpace(bytes, 0), (keyAt, valueAt) => {
    const end = valueEnd(bytes, valueAt)
    const name = String(JSON.parse(bytes.toString('utf8', keyAt, bytes.lastIndexOf(quote, valueAt - 1) + 1)))
    if (!Object.hasOwn(fields, name)) members.push(bytes.subarray(keyAt, end), separator)
    return end
  })
  // The fields without the braces around them; JSON leaves out undefined ones.
  const own = Buffer.from(JSON.stringify(fields).slice(1, -1))
  if (own.length === 0) members.pop()
  return Buffer.concat([Buffer.from('{'), ...members, own, Buffer.from('}')])
}

const separator = Buffer.from(',')

/**
 * The body with another text as the value of a key. Inside of a string a quote has a backslash before it, so a key in quotes
 * is a key; if it is there once, it is the one of the body itself, unless that was spelled in another way. Undefined if the
 * body is not that plain.
 */
function withText(bytes: Buffer, name: string, value: string): Buffer | undefined {
  const key = JSON.stringify(name)
  const at = bytes.indexOf(key)
  const after = at + key.length
  if (at === -1 || bytes.includes(key, after) || hasEscapedLetter(bytes)) return undefined
  const [written] = plainMember.exec(bytes.toString('latin1', after, after + longestMember)) ?? []
  if (written === undefined) return undefined
  const replaced = Buffer.from(`:${JSON.stringify(value)}`)
  return Buffer.concat([bytes.subarray(0, after), replaced, bytes.subarray(after + written.length)])
}

/** Whether a letter is escaped, which nobody needs but JSON allows, in keys too. */
function hasEscapedLetter(bytes: Buffer): boolean {
  return escapedLetters.some((letters) => bytes.includes(letters))
}

const escapedLetters = ['\\u004', '\\u005', '\\u006', '\\u007']

/** A colon and a text without escapes. */
const plainMember = /^\s*:\s*"[^"\\]*"/

/** How far a value is looked for: longer than any name of a model. */
const longestMember = 1024
