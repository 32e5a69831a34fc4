import { callOf, isFence, jsonEnd, objectStart, readCallObject, skipSeparators, skipSpace } from './json-calls.ts'
import { toolFormat, toolLines } from './tool-format.ts'
import { readReply, type Reply, type Tag, taggedBody } from './read-reply.ts'

const pythonTag = '|python_tag|'
const tagNames = ['function', pythonTag, '|eom_id|', '|eot_id|']

/** Calls as Llama 3 writes them: JSON objects, bare or behind `<|python_tag|>`, and `<function=name>` blocks. */
export const llama = toolFormat({
  name: 'llama',
  describe: (tools) => `# Tools

These tools are yours to use, one on each line, with a JSON Schema for its parameters:

${toolLines(tools)}

To call one, reply with nothing but a JSON object of this form:

{"name": "the tool", "parameters": {"parameter": "value"}}

Several calls are several objects with ";" between them. The results come with the next message. A reply that is no call ends the task.`,
  find: (text) => readReply(text, tagNames, { atTag, atLine }),
  result: ({ function: { name } }, text, isError) => JSON.stringify({ name, [isError ? 'error' : 'output']: text }),
})

function atTag(tag: Tag, reply: Reply): number {
  if (tag.isClosing) return tag.end
  if (tag.name === 'function') {
    const body = taggedBody(reply, tag.end)
    reply.found.push({ name: tag.value, arguments: body.text })
    return body.end
  }
  if (tag.name !== pythonTag) return tag.end
  const start = objectStart(reply.text, skipSpace(reply.text, tag.end))
  if (reply.text[start] === '{') return readObjects(start, reply, 'call')
  const body = taggedBody(reply, start)
  reply.found.push({ name: '', arguments: body.text })
  return body.end
}

/** A bare object counts only at the start of the reply or in a fence, with a name and arguments: answers are JSON too. */
function atLine(at: number, reply: Reply, isOpening: boolean): number {
  const start = objectStart(reply.text, at)
  if ((!isOpening && !isFence(reply.text, at)) || reply.text[start] !== '{') return at
  return readObjects(start, reply, 'perhaps')
}

/** Reads objects with `;`, a comma or nothing but white space between them. */
function readObjects(start: number, reply: Reply, what: 'call' | 'perhaps'): number {
  const { text, found } = reply
  let at = start
  for (;;) {
    const valueEnd = jsonEnd(text, at)
    const limit = valueEnd === -1 ? brokenObjectLimit(at, reply) : valueEnd
    const object = readCallObject(text, at, limit)
    const isCall = object.name !== undefined && object.arguments !== undefined
    if (what === 'perhaps' && !isCall) return valueEnd === -1 ? at : object.end
    found.push(callOf(object, text, at))
    at = skipSeparators(text, object.end)
    if (text[at] !== '{') return object.end
  }
}

/** How far a broken object can reach: to the next tag, the end of its fence, or the next object after a `;`. */
function brokenObjectLimit(start: number, { text, tags }: Reply): number {
  const limit = tags.limit(start)
  for (let at = start; at < limit; at += 1) {
    if (text[at] === '`' && isFence(text, at)) return at
    if (text[at] !== ';') continue
    const next = skipSpace(text, at + 1)
    if (text[next] === '{' && text[skipSpace(text, next + 1)] === '"') return at
  }
  return limit
}
