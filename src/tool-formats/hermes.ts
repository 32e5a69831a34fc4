import { callOf, objectStart, readCallObject, skipFence, skipSeparators, skipSpace } from './json-calls.ts'
import { type FoundCall, toolFormat, toolLines } from './tool-format.ts'
import { readReply, type Reply, type Tag, taggedBody } from './read-reply.ts'

const block = 'tool_call'

/** Calls as `<tool_call>` blocks with a JSON object, as Hermes, Qwen and many others write them. */
export const hermes = toolFormat({
  name: 'hermes',
  describe: (tools) => `# Tools

These tools are yours to use, one on each line, with a JSON Schema for its arguments:

<tools>
${toolLines(tools)}
</tools>

To call one, write its name and its arguments as a JSON object between these tags:

<tool_call>
{"name": "the tool", "arguments": {"parameter": "value"}}
</tool_call>

Several calls are several blocks. Stop after them: the results come with the next message, between <tool_response> tags. A reply without a call ends the task.`,
  find: (text) => readReply(text, [block], { atTag: readBlock }),
  result: (_call, text) => `<tool_response>\n${text}\n</tool_response>`,
})

function readBlock(opening: Tag, reply: Reply): number {
  if (opening.isClosing) return opening.end
  const body = taggedBody(reply, skipFence(reply.text, skipSpace(reply.text, opening.end)))
  readCalls(body.text, reply.found)
  return body.end
}

/** Usually a block has one call; some models put the next object into the same block. */
function readCalls(body: string, found: FoundCall[]): void {
  let at = objectStart(body, 0)
  if (body[at] !== '{') found.push({ name: '', arguments: body })
  while (body[at] === '{') {
    const object = readCallObject(body, at, body.length)
    found.push(callOf(object, body, at))
    at = skipSeparators(body, object.end)
  }
}
