import type { Client, RequestOptions } from '@modelcontextprotocol/client'
import { MillraceError } from '../../../errors/index.ts'
import type { ServerTool } from './tool-catalogue.ts'
import { unreadableList } from './_unreadable-list.ts'

/** No model can choose among more; a server that lists them is broken or not meant for this. */
const maxTools = 10_000
const maxPages = 1000

/** All tools of a server, all pages of them. Fails past the bounds, and where a page leads back to one that was read. */
export async function listTools(server: string, client: Client, options: RequestOptions): Promise<ServerTool[]> {
  // A server may offer only resources or prompts; to ask it would be an error.
  if (!client.getServerCapabilities()?.tools) return []
  const tools = new Map<string, ServerTool>()
  const cursors = new Set<string>()
  let cursor: string | undefined
  do {
    const params = cursor === undefined ? {} : { cursor }
    const page = await client.request({ method: 'tools/list', params }, options).catch((error: unknown) => {
      throw unreadableList(error)
    })
    for (const { name, description, inputSchema, outputSchema, annotations } of page.tools) {
      // Of two with the same name only one can be called; the first is the one that most clients take.
      if (tools.has(name)) continue
      const isReadOnly = annotations?.readOnlyHint === true
      tools.set(name, {
        server,
        name,
        ...(description !== undefined && { description }),
        inputSchema,
        ...(outputSchema !== undefined && { outputSchema }),
        isReadOnly,
        // What changes nothing can be repeated, whether or not it says so.
        isIdempotent: isReadOnly || annotations?.idempotentHint === true,
      })
    }
    if (tools.size > maxTools) throw endless(server, `it has more than ${maxTools} tools`)
    cursor = page.nextCursor
    if (cursor === undefined) break
    if (cursors.has(cursor)) throw endless(server, `the page '${cursor}' leads back to itself`)
    cursors.add(cursor)
    if (cursors.size >= maxPages) throw endless(server, `it has more than ${maxPages} pages`)
  } while (cursor !== undefined)
  return [...tools.values()]
}

function endless(server: string, why: string): MillraceError {
  return new MillraceError('tool_infra', `the tool list of server '${server}' does not end: ${why}`)
}
