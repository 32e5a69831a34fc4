import { parseBody } from '../dialects/index.ts'
import { isJsonObject, type JsonObject } from '../schema/index.ts'
import type { InteractionCall } from './_visit.ts'

/**
 * A client's body as the backend gets it: the same bytes, with `fields` in it. What the client did not write is put in at
 * the head, so that a long conversation is not written anew; only what contradicts the client's own words makes that
 * necessary. The body is an object and not empty; `members` are its own, but for known messages.
 */
export function upstreamBody(
  { api, body }: Pick<InteractionCall, 'api' | 'body'>,
  members: JsonObject,
  fields: JsonObject,
): Buffer {
  let head = ''
  let rest = body
  for (const [name, value] of Object.entries(fields)) {
    if (members[name] === value) continue
    if (!Object.hasOwn(members, name)) {
      head += `${JSON.stringify(name)}:${JSON.stringify(value)},`
      continue
    }
    const replaced = typeof value === 'string' ? replacedText(rest.toString(), name, value) : undefined
    if (replaced === undefined) {
      const whole = parseBody(api, body.toString())
      return Buffer.from(JSON.stringify({ ...(isJsonObject(whole) && whole), ...fields }))
    }
    rest = Buffer.from(replaced)
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
function replacedText(text: string, name: string, value: string): string | undefined {
  const key = JSON.stringify(name)
  const at = text.indexOf(key)
  if (at === -1 || text.includes(key, at + key.length) || escapedLetter.test(text)) return undefined
  plainMember.lastIndex = at + key.length
  const [written] = plainMember.exec(text) ?? []
  if (written === undefined) return undefined
  return `${text.slice(0, at + key.length)}:${JSON.stringify(value)}${text.slice(plainMember.lastIndex)}`
}

/** Nobody needs to escape one, but JSON allows it, in keys too. */
const escapedLetter = /\\u00[4-7]/

/** A colon and a text without escapes. */
const plainMember = /\s*:\s*"[^"\\]*"/y
