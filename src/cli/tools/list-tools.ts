import { jsonSchemaOf, type JsonSchema } from '../../tools/index.ts'
import { exitCodes, type ExitCode } from '../process/exit-codes.ts'
import type { CommandIo } from '../process/io.ts'
import { listText } from './_list-text.ts'
import { openServers, type OpenedServer } from './_open-servers.ts'
import { onlyServer, type ToolSource } from './tool-source.ts'

export interface ListedTool {
  readonly name: string
  readonly description: string | undefined
  readonly inputSchema: JsonSchema
}

/** One server, or the environment's own tools, which need no server. */
export interface ListedServer {
  readonly server: string
  readonly transport: OpenedServer['transport'] | 'own'
  readonly ms?: number
  readonly tools: readonly ListedTool[]
  readonly error?: string
}

/** Carries out `millrace tools list`: opens all servers at once, and shows their tools. */
export async function listTools(
  source: ToolSource,
  { server, asJson }: { readonly server: string | undefined; readonly asJson: boolean },
  { io, signal }: { readonly io: CommandIo; readonly signal: AbortSignal },
): Promise<ExitCode> {
  await using servers = await openServers(onlyServer(source, server), { env: io.env, signal })
  const listed = [...(server === undefined ? ownTools(source) : []), ...servers.all.map(listedServer)]
  const { stdout } = io
  if (asJson) void stdout.line(JSON.stringify({ servers: listed }))
  else {
    const width = stdout.isTTY ? stdout.columns : Number.POSITIVE_INFINITY
    const frame = { config: source.given, program: io.program, width, style: stdout.style }
    for (const line of listText(listed, frame)) void stdout.line(line)
  }
  // No evaluation begins with a wrong configuration, even if that server is not required.
  if (servers.all.some(({ error }) => error?.code === 'config_invalid')) return exitCodes.usage
  return servers.all.some(({ isRequired, error }) => isRequired && error) ? exitCodes.failed : exitCodes.ok
}

function ownTools({ environment }: ToolSource): ListedServer[] {
  const tools = Object.entries(environment?.environment.tools ?? {})
  if (!environment || tools.length === 0) return []
  return [
    {
      server: environment.name,
      transport: 'own',
      tools: tools.map(([name, { description, parameters }]) => ({
        name,
        description,
        inputSchema: jsonSchemaOf(parameters),
      })),
    },
  ]
}

function listedServer({ server, transport, ms, catalogue, error }: OpenedServer): ListedServer {
  const facts = { server, transport, ms: Math.round(ms) }
  if (error) return { ...facts, tools: [], error: error.rawMessage }
  return {
    ...facts,
    tools: catalogue.tools.map(({ name, description, inputSchema }) => ({ name, description, inputSchema })),
  }
}
