import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const packageFile = (path: string): string => fileURLToPath(new URL(`../../../node_modules/${path}`, import.meta.url))

/** A server from npm, started as its package's own file. */
export const everything = {
  command: process.execPath,
  args: [packageFile('@modelcontextprotocol/server-everything/dist/index.js')],
}

/** A server that is whatever this script does. */
export function script(source: string): { readonly command: string; readonly args: readonly string[] } {
  return { command: process.execPath, args: ['--input-type=module', '-e', source] }
}

/**
 * Answers `initialize` and lists two tools, after it has said what it should not. The one fails; the other never answers, and
 * leaves a file `called` behind.
 */
export const chatty = script(`
  import { writeFileSync } from 'node:fs'
  import { createInterface } from 'node:readline'
  console.log('listening!')
  for await (const line of createInterface({ input: process.stdin })) {
    const { id, method, params } = JSON.parse(line)
    const results = {
      initialize: { protocolVersion: params?.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: 'chatty', version: '3' } },
      'tools/list': { tools: ['nod', 'sleep'].map((name) => ({ name, inputSchema: { type: 'object' }, annotations: { readOnlyHint: true } })) },
      'tools/call': { content: [{ type: 'text', text: 'no' }], isError: true },
    }
    if (params?.name === 'sleep') writeFileSync('called', '')
    else if (id !== undefined) console.log(JSON.stringify({ jsonrpc: '2.0', id, result: results[method] }))
  }
`)

/** Writes `servers.json` with these servers into the folder. */
export async function writeServers(cwd: string, mcpServers: Readonly<Record<string, unknown>>): Promise<void> {
  await writeFile(join(cwd, 'servers.json'), JSON.stringify({ mcpServers }))
}
