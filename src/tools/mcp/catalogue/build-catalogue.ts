import { createHash } from 'node:crypto'
import { unlistedNames } from './unlisted-names.ts'
import type { ServerOptions } from '../config/server-config.ts'
import type { ServerTool, ToolCatalogue } from './tool-catalogue.ts'

/** The part of a server's list that rollouts are shown. */
export function buildCatalogue(server: string, listed: readonly ServerTool[], options: ServerOptions): ToolCatalogue {
  const tools = listed.filter(({ name }) => isAllowed(name, options))
  const unlisted = unlistedNames(listed, options)
  return { server, tools, digest: digestOf(tools), ...(unlisted.length > 0 && { unlisted }) }
}

/** Checked for the list and again for each call: a model may know a tool that it was not shown. */
export function isAllowed(tool: string, { allow, deny }: ServerOptions): boolean {
  return (allow?.includes(tool) ?? true) && !deny?.includes(tool)
}

/** Whether two catalogues have the same tools and the same unlisted names. */
export function isSameCatalogue(before: ToolCatalogue, after: ToolCatalogue): boolean {
  const named = ({ unlisted = [] }: ToolCatalogue): string => JSON.stringify(unlisted.map(({ name }) => name))
  return before.digest === after.digest && named(before) === named(after)
}

/** How two lists of one server differ, by the names of tools. */
export function catalogueChanges(before: ToolCatalogue, after: ToolCatalogue) {
  const earlier = new Map(before.tools.map((tool) => [tool.name, described(tool)]))
  const added: string[] = []
  const changed: string[] = []
  for (const tool of after.tools) {
    const was = earlier.get(tool.name)
    earlier.delete(tool.name)
    if (was === undefined) added.push(tool.name)
    else if (was !== described(tool)) changed.push(tool.name)
  }
  return { added, removed: [...earlier.keys()], changed }
}

/** The digest of the tools in a fixed order: a server that lists them in another order has not changed. */
function digestOf(tools: readonly ServerTool[]): string {
  const hash = createHash('sha256')
  for (const line of tools.map(described).sort()) hash.update(line).update('\n')
  return hash.digest('hex')
}

function described(tool: ServerTool): string {
  const { name, description = '', inputSchema, outputSchema = null, isReadOnly, isIdempotent } = tool
  return JSON.stringify([name, description, inputSchema, outputSchema, isReadOnly, isIdempotent])
}
