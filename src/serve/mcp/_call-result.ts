import type { CallToolResult, ContentBlock } from '@modelcontextprotocol/server'
import type { ContentPart } from '../../schema/index.ts'
import type { ToolResult } from '../../tools/index.ts'

const dataUrl = /^data:([^;,]+);base64,(.*)$/s

/** What a tool came to, in the words of MCP: whatever the model is told of as a failure is an error there, too. */
export function callResult({ message, record }: ToolResult): CallToolResult {
  const { content } = message
  return {
    content: typeof content === 'string' ? [{ type: 'text', text: content }] : content.map(blockOf),
    ...(record.status !== 'ok' && { isError: true }),
  }
}

function blockOf(part: ContentPart): ContentBlock {
  if (part.type === 'text') return part
  if (part.type === 'other') return { type: 'text', text: JSON.stringify(part.value) }
  const { url } = part.image_url
  const [, mimeType, data] = dataUrl.exec(url) ?? []
  if (mimeType !== undefined && data !== undefined) return { type: 'image', mimeType, data }
  return { type: 'resource_link', uri: url, name: 'image' }
}
