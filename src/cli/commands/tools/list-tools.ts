import { describeParameters, type JsonSchema, jsonSchemaOf } from '../../../tools/index.ts'
import { type ExitCode, exitCodes } from '../../terminal/exit-codes.ts'
import { formatDuration, shellQuote } from '../../terminal/format.ts'
import { textTable } from '../../terminal/layout.ts'
import { fitText, printable, printableLine, type Style, wrapText } from '../../terminal/text.ts'
import { onlyServer, type OpenedServer, openServers, type ToolCommandContext, type ToolSource } from './tool-source.ts'

export interface ListedTool {
  readonly name: string
  readonly description: string | undefined
  readonly inputSchema: JsonSchema
}

export interface ListedServer {
  readonly server: string
  readonly transport: OpenedServer['transport'] | 'own'
  readonly ms?: number
  readonly tools: readonly ListedTool[]
  readonly error?: string
}

export async function listTools(
  source: ToolSource,
  { server, json: asJson }: { readonly server?: string; readonly json?: true },
  { io, signal }: ToolCommandContext,
): Promise<ExitCode> {
  await using servers = await openServers(onlyServer(source, server), { io, signal })
  const listed = [...(server === undefined ? ownTools(source) : []), ...servers.all.map(listedServer)]
  const { stdout } = io
  if (asJson) void stdout.line(JSON.stringify({ servers: listed }))
  else {
    const frame = { config: source.given, program: io.program, width: stdout.tableWidth, style: stdout.style }
    await stdout.lines(listText(listed, frame))
  }
  // No evaluation begins with a wrong configuration, even if that server is not required.
  if (servers.all.some(({ error }) => error?.code === 'config_invalid')) return exitCodes.usage
  return servers.all.some(({ isRequired, error }) => isRequired && error) ? exitCodes.failed : exitCodes.ok
}

function ownTools({ environment }: ToolSource): ListedServer[] {
  const tools = Object.entries(environment?.environment.tools ?? {})
  if (!environment || tools.length === 0) return []
  const listed = tools.map(([name, { description, parameters }]) => {
    return { name, description, inputSchema: jsonSchemaOf(parameters) }
  })
  return [{ server: environment.name, transport: 'own', tools: listed }]
}

function listedServer({ server, transport, ms, catalogue, error }: OpenedServer): ListedServer {
  const facts = { server, transport, ms: Math.round(ms) }
  if (error) return { ...facts, tools: [], error: error.rawMessage }
  const tools = catalogue.tools.map(({ name, description, inputSchema }) => ({ name, description, inputSchema }))
  return { ...facts, tools }
}

interface Frame {
  readonly config: string
  readonly program: string
  readonly width: number
  readonly style: Style
}

const indent = '  '

function listText(servers: readonly ListedServer[], frame: Frame): readonly string[] {
  const { style } = frame
  if (servers.length === 0) return ['no tools: there are neither servers nor tools of its own']
  const table = textTable({
    columns: [
      { title: 'server', shrinks: true },
      { title: 'tools', align: 'right' },
      { title: 'started', align: 'right' },
      { title: 'transport' },
      { title: '' },
    ],
    rows: servers.map(({ server, tools, ms, transport, error }) => [
      server,
      error === undefined ? String(tools.length) : '–',
      ms === undefined ? '–' : formatDuration(ms),
      transport,
      error === undefined ? '' : style.bad('failed'),
    ]),
    ...frame,
  })
  const failures = servers.flatMap(({ server, error }) => (error === undefined ? [] : failure(server, error, frame)))
  const offered = servers.flatMap(({ server, tools }) =>
    tools.length === 0 ? [] : ['', style.bold(server), ...tools.map((tool) => toolLine(tool, frame))],
  )
  return [...table, ...failures, ...offered]
}

function failure(server: string, error: string, { config, program, width, style }: Frame): string[] {
  const lines = printable(error)
    .split('\n')
    .flatMap((line) => wrapText(line, Math.max(40, width - indent.length)))
  const more = style.dim(`${program} tools doctor ${shellQuote([config, '--server', server])} shows more`)
  return ['', style.bold(server), ...lines.map((line) => indent + style.bad(line)), indent + more]
}

function toolLine({ name, description, inputSchema }: ListedTool, { width, style }: Frame): string {
  // A schema without `properties` is an object of which nothing is known.
  const parameters = 'properties' in inputSchema ? describeParameters(inputSchema) : '{}'
  const about = description === undefined ? '' : `  ${style.dim(printableLine(description))}`
  return fitText(`${indent}${style.accent(printableLine(name))} ${printableLine(parameters)}${about}`, width)
}
