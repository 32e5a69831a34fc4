import { numbered } from './_found-call.ts'
import { readCallList, startsCallList } from './_python-calls.ts'
import { readReply, type Reply } from './_read-reply.ts'
import { skipFence } from './_skip.ts'
import type { ToolFormat } from './tool-format.ts'
import { toolLines } from './_tool-lines.ts'

/** Tags that Llama 4 and others put around their lists. */
const tagNames = ['|python_start|', '|python_end|', '|python_tag|', '|eom_id|', '|eot_id|', '|eot|']

/** Calls as a list in Python: `[search(query="x"), now()]`. Their arguments are read as Python and passed on as JSON. */
export const pythonic: ToolFormat = {
  name: 'pythonic',
  describe: (tools) => `# Tools

These functions are yours to use, one on each line, with a JSON Schema for its parameters:

${toolLines(tools)}

To call some, reply with nothing but a list of calls in Python, with keyword arguments that are literals:

[function(parameter="value"), other_function(first=1, second=[True, None])]

A parameter whose name is no Python name goes into a dict: function(**{"the-name": "value"}). The results come with the next message. A reply that is no such list ends the task.`,
  parse: (text, idBase) => numbered(readReply(text, tagNames, { atLine }), idBase),
  result: ({ function: { name } }, text, isError) => `${name} ${isError ? 'failed' : 'returned'}:\n${text}`,
}

/** Lists count only at the beginning of a line: elsewhere a bracket is more likely part of a sentence. */
function atLine(at: number, { text, tags, found }: Reply): number {
  const start = skipFence(text, at)
  return startsCallList(text, start) ? readCallList(text, start, tags.limit(start), found) : at
}
