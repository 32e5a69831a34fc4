import { Server } from '@modelcontextprotocol/server'
import { callResult } from './_call-result.ts'
import type { EnvironmentSession } from './environment-session.ts'

/** A session in the words of MCP. Nothing is decided here: list, call, encode. */
export function mcpServer(session: EnvironmentSession, version: string): Server {
  const { name, description } = session
  const server = new Server(
    { name, version },
    { capabilities: { tools: {} }, ...(description !== undefined && { instructions: description }) },
  )
  const tools = session.definitions.map(({ function: tool }) => ({
    name: tool.name,
    ...(tool.description !== undefined && { description: tool.description }),
    // The tool box takes nothing but objects.
    inputSchema: { ...tool.parameters, type: 'object' as const },
  }))
  server.setRequestHandler('tools/list', () => ({ tools }))
  server.setRequestHandler('tools/call', async ({ params }, { mcpReq }) =>
    callResult(
      await session.call({
        id: String(mcpReq.id),
        name: params.name,
        arguments: params.arguments ?? {},
        signal: mcpReq.signal,
      }),
    ),
  )
  return server
}
