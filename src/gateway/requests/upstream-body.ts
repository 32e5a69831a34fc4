import { membersEnd, nonSpace, quote, valueEnd } from '../../kit/index.ts'
import type { JsonObject } from '../../schema/index.ts'

/** A client's body with `fields` in it; all other bytes stay. `members`: those of the body, but for known messages. */
export function upstreamBody(
  { bytes, members }: { readonly bytes: Buffer; readonly members: JsonObject },
  fields: JsonObject,
): Buffer {
  if (Object.keys(members).length === 0) return Buffer.from(JSON.stringify(fields))
  let head = ''
  for (const [name, value] of Object.entries(fields)) {
    if (members[name] === value) continue
    if (Object.hasOwn(members, name)) return withFields(bytes, fields)
    head += `${JSON.stringify(name)}:${JSON.stringify(value)},`
  }
  if (head === '') return bytes
  const start = bytes.indexOf('{') + 1
  return Buffer.concat([bytes.subarray(0, start), Buffer.from(head), bytes.subarray(start)])
}

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
