import { type Client, type RequestOptions, specTypeSchemas } from '@modelcontextprotocol/client'
import { z } from 'zod'
import { MillraceError } from '../../../errors/index.ts'
import { describeIssues, isJsonObject, safeParse, validate } from '../../../schema/index.ts'
import type { ServerOptions } from '../config/server-config.ts'
import { isAllowed, type ServerTool } from './tool-catalogue.ts'

/** No model can choose among more tools; a server that lists more is broken or not meant for this. */
const maxTools = 10_000
const maxPages = 1000
/** How many problems are shown: mostly every tool has the same one. */
const maxShown = 3

/** Tools are read one by one: the SDK would refuse the whole list for one of them, without its name. */
const pageSchema = z.object({ tools: z.array(z.unknown()), nextCursor: z.string().optional() })
const anything = z.unknown()

/** All tools of a server. Fails where one cannot be offered: a rollout without it would be another experiment. */
export async function listTools(
  client: Client,
  server: string,
  options: ServerOptions,
  request: RequestOptions,
): Promise<ServerTool[]> {
  // A server may offer only resources or prompts; asking it for tools would be an error.
  if (!client.getServerCapabilities()?.tools) return []
  const tools = new Map<string, ServerTool>()
  const cursors = new Set<string>()
  let cursor: string | undefined
  do {
    const params = cursor === undefined ? {} : { cursor }
    const page = safeParse(pageSchema, await client.request({ method: 'tools/list', params }, anything, request))
    if (!page.success) throw unfit(describeIssues(page.error.issues))
    const problems: string[] = []
    for (const [index, listed] of page.data.tools.entries()) {
      const read = await readTool(server, listed)
      const { name = `tools[${index}]` } = read
      // Of two tools with the same name only one can be called; most clients take the first.
      if (tools.has(name)) continue
      if (!('problem' in read)) tools.set(name, read)
      // Tools that `allow` and `deny` leave out need not follow MCP.
      else if (isAllowed(name, options)) problems.push(`${name}: ${read.problem}`)
      // The tool is never shown, but must be in the list: `deny` may only name listed tools.
      else tools.set(name, { server, name, inputSchema: {}, isReadOnly: false, isIdempotent: false })
    }
    const more = problems.length > maxShown ? `; and ${problems.length - maxShown} more` : ''
    if (problems.length > 0) throw unfit(`${problems.slice(0, maxShown).join('; ')}${more}`)
    if (tools.size > maxTools) throw endless(server, `it has more than ${maxTools} tools`)
    cursor = page.data.nextCursor
    if (cursor === undefined) break
    if (cursors.has(cursor)) throw endless(server, `the page '${cursor}' leads back to itself`)
    cursors.add(cursor)
    if (cursors.size >= maxPages) throw endless(server, `it has more than ${maxPages} pages`)
  } while (cursor !== undefined)
  return [...tools.values()]
}

function unfit(why: string): MillraceError {
  return new MillraceError(
    'tool_infra',
    `its tool list violates MCP: ${why}. Correct the server, or leave the tool out with "deny"`,
  )
}

function endless(server: string, why: string): MillraceError {
  return new MillraceError('tool_infra', `the tool list of server '${server}' does not end: ${why}`)
}

/** A listed tool that does not follow MCP. */
interface UnfitTool {
  /** Left out if the tool has no name. */
  readonly name?: string
  readonly problem: string
}

/** One entry of a server's list. */
async function readTool(server: string, listed: unknown): Promise<ServerTool | UnfitTool> {
  const checked = await validate(specTypeSchemas.Tool, listed)
  if (checked.problem !== undefined) {
    const name = isJsonObject(listed) ? listed['name'] : undefined
    return { ...(typeof name === 'string' && { name }), problem: describeIssues(checked.issues) }
  }
  const { name, description, inputSchema, outputSchema, annotations } = checked.value
  const isReadOnly = annotations?.readOnlyHint === true
  return {
    server,
    name,
    ...(description !== undefined && { description }),
    inputSchema,
    ...(outputSchema !== undefined && { outputSchema }),
    isReadOnly,
    // A read-only tool can be repeated, whether or not it says so.
    isIdempotent: isReadOnly || annotations?.idempotentHint === true,
  }
}
