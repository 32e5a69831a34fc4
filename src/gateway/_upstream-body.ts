import { isUtf8 } from 'node:buffer'
import type { JsonObject } from '../schema/index.ts'

export interface ClientBody {
  readonly bytes: Buffer
  /** Its members, but perhaps for messages that were read before. */
  readonly members: JsonObject
  /** All of them. */
  readonly whole: () => JsonObject
}

/**
 * A client's body as the backend gets it: the same bytes, with `fields` in it. What the client did not write is put in at
 * the head, so that a long conversation is not written anew; only what contradicts the client's own words makes that
 * necessary. The body is an object and not empty.
 */
export function upstreamBody({ bytes, members, whole }: ClientBody, fields: JsonObject): Buffer {
  let head = ''
  // What is no UTF-8 is sent as it was read.
  let rest = isUtf8(bytes) ? bytes : Buffer.from(bytes.toString())
  for (const [name, value] of Object.entries(fields)) {
    if (members[name] === value) continue
    if (!Object.hasOwn(members, name)) {
      head += `${JSON.stringify(name)}:${JSON.stringify(value)},`
      continue
    }
    const replaced = typeof value === 'string' ? withText(rest, name, value) : undefined
    if (!replaced) return Buffer.from(JSON.stringify({ ...whole(), ...fields }))
    rest = replaced
  }
  if (head === '') return rest
  const start = rest.indexOf('{') + 1
  return Buffer.concat([rest.subarray(0, start), Buffer.from(head), rest.subarray(start)])
}

/**
 * With another text as the value of a key. Inside of a string a quote has a backslash before it, so a key in quotes is a
 * key; if it is there once, it is the one of the body itself, unless that was spelled in another way. Undefined if it is
 * not so plain.
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

/** Nobody needs to escape one, but JSON allows it, in keys too. */
function hasEscapedLetter(bytes: Buffer): boolean {
  return escapedLetters.some((letters) => bytes.includes(letters))
}

const escapedLetters = ['\\u004', '\\u005', '\\u006', '\\u007']

/** A colon and a text without escapes. */
const plainMember = /^\s*:\s*"[^"\\]*"/

/** Longer than any name of a model. */
const longestMember = 1024
