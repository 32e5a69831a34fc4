import { type DescribedTool, toolFormat } from './tool-format.ts'
import { readReply, type Reply, type Tag, taggedBody } from './read-reply.ts'

const block = 'use_mcp_tool'
const tagNames = [block, 'server_name', 'tool_name', 'arguments']

/** Calls as XML blocks that name a server, as MiroThinker's models write them. */
export const mcpXml = toolFormat({
  name: 'mcp-xml',
  describe,
  find: (text) => readReply(text, tagNames, { atTag: readBlock }),
  result: ({ function: { name }, server }, text, isError) => {
    const tool = server === undefined ? name : `${name} on ${server}`
    return `${isError ? 'Failed call' : 'Result'} of ${tool}:\n${text}`
  },
})

/** Reads the three parts in any order, each at most once. A block ends at its closing tag, or where it cannot go on. */
function readBlock(opening: Tag, reply: Reply): number {
  if (opening.name !== block || opening.isClosing) return opening.end
  const parts = new Map<string, string>()
  let end = opening.end
  for (;;) {
    const tag = reply.tags.next(end)
    const isPart = tag && tag.name !== block && tagNames.includes(tag.name)
    if (!isPart || (!tag.isClosing && parts.has(tag.name))) {
      if (tag?.name === block && tag.isClosing) end = tag.end
      break
    }
    end = tag.end
    if (tag.isClosing) continue
    const body = taggedBody(reply, tag.end)
    parts.set(tag.name, body.text)
    end = body.end
  }
  const server = parts.get('server_name')
  reply.found.push({
    name: parts.get('tool_name') ?? '',
    arguments: parts.get('arguments') ?? '',
    ...(server && { server }),
  })
  return end
}

function describe(tools: readonly DescribedTool[]): string {
  const byServer = Map.groupBy(tools, ({ server }) => server)
  const sections = [...byServer].map(([server, own]) => {
    const title = server === undefined ? '## Without a server' : `## Server ${server}`
    return [title, ...own.map(describeTool)].join('\n\n')
  })
  const serverLine = byServer.has(undefined) ? '\nLeave out the line with the server for a tool that has none.' : ''
  return `# Tools

These tools are yours to use. Each is listed under its server, with a JSON Schema for its arguments.

${sections.join('\n\n')}

# Calling a tool

Write a block of this form in your reply, after you have finished thinking:

<use_mcp_tool>
<server_name>the server</server_name>
<tool_name>the tool</tool_name>
<arguments>
{"parameter": "value"}
</arguments>
</use_mcp_tool>

The arguments are one JSON object.${serverLine} Several blocks are several calls. Stop after them: the results come with the next message. A reply without a block ends the task.`
}

function describeTool({ definition, serverToolName }: DescribedTool): string {
  const { name, description, parameters } = definition.function
  const lines = [`### Tool ${serverToolName ?? name}`]
  if (description !== undefined) lines.push(description)
  lines.push(`Arguments: ${JSON.stringify(parameters)}`)
  return lines.join('\n')
}
