import { hash } from 'node:crypto'
import { MillraceError } from '../../../errors/index.ts'
import { jsonSchemaParameters, type JsonSchemaParameters } from '../../json-schema-parameters.ts'
import { isToolName, type Tool, ToolAnswer } from '../../tool.ts'
import { longestWaitOf, type ServerConfig, serverDefaults, sharingOf } from '../config/server-config.ts'
import type { ServerCalls } from '../sharing/rollout-lease.ts'
import type { ServerAnswer } from '../transports/pending-calls.ts'
import type { ServerTool, ToolCatalogue } from './tool-catalogue.ts'

/** The parts of a rollout that a server's tool needs. */
export interface McpToolContext {
  readonly servers: ServerCalls
  readonly signal: AbortSignal
  /** A call gets no more time than the rollout has left. */
  readonly budget?: { readonly workingMsLeft: number; readonly wallMsLeft: number }
}

type McpTool = Tool<McpToolContext, JsonSchemaParameters>

/** How much longer the tool box waits than the session does: the session's own message about a timeout says more. */
const sessionLeadMs = 5_000

/** Makes a tool of each listed one, under the names that models see. The lists hold only tools that rollouts may call. */
export function mcpTools(
  catalogues: readonly ToolCatalogue[],
  configs: Readonly<Record<string, ServerConfig>>,
): Record<string, McpTool> {
  const listed = catalogues.flatMap(({ server, tools }) => {
    const config = configs[server]
    if (!config) throw new MillraceError('internal', `a list of tools came from "${server}", which is not configured`)
    return tools.map((tool) => ({ tool, config, server, wanted: `${config.prefix ?? ''}${tool.name}` }))
  })
  const names = exposedNames(listed)
  return Object.fromEntries(listed.map(({ tool, config }, index) => [names[index] ?? '', toTool(tool, config)]))
}

function toTool(tool: ServerTool, config: ServerConfig): McpTool {
  const { server, name } = tool
  const isRepeatable = sharingOf(server, config) === 'shared' || tool.isReadOnly
  // Calls of one turn that change the same state would have results that depend on their order at the server.
  const isParallel = config.parallel ?? isRepeatable
  return {
    ...(tool.description !== undefined && { description: tool.description }),
    parameters: jsonSchemaParameters(tool.inputSchema),
    ...(!isParallel && { exclusive: true }),
    resume: config.resume ?? (isRepeatable ? 'reuse' : 'restart'),
    timeoutMs: (config.callTimeoutMs ?? serverDefaults.callTimeoutMs) + longestWaitOf(config) + sessionLeadMs,
    origin: { server, name },
    async run(args, { servers, signal, budget }) {
      const timeoutMs = budget ? Math.min(budget.workingMsLeft, budget.wallMsLeft) : Number.POSITIVE_INFINITY
      const call = { tool: name, arguments: args, signal, ...(Number.isFinite(timeoutMs) && { timeoutMs }) }
      return toToolAnswer(await servers.call(server, call))
    },
  }
}

function toToolAnswer({ content, isError, detail }: ServerAnswer): ToolAnswer {
  const output = detail.sessionRestarted ? withRestart(content, detail.server) : content
  return new ToolAnswer(output, { isError, detail: { ...detail } })
}

/** Tells the model of a restart; otherwise it would go on as if the server still knew what it was told. */
function withRestart(output: ServerAnswer['content'], server: string): ServerAnswer['content'] {
  const note = `Note: the tool server "${server}" was restarted and has forgotten everything from before this call.`
  return typeof output === 'string' ? `${note}\n\n${output}` : [{ type: 'text', text: note }, ...output]
}

/** Throws `config_invalid` where a tool of a server has the name of one of the environment's own. */
export function refuseTaken(tools: ReturnType<typeof mcpTools>, own: Readonly<Record<string, unknown>>): void {
  const taken = Object.entries(tools).find(([name]) => Object.hasOwn(own, name))
  if (!taken) return
  const [name, { origin }] = taken
  throw new MillraceError(
    'config_invalid',
    `the environment and its server "${origin?.server}" both have a tool "${name}": set "prefix" for the server`,
  )
}

interface ToolToName {
  readonly server: string
  readonly wanted: string
}

const maxLength = 64
const hashLength = 8

/** Names that model APIs accept stay; `files.read` becomes `files_read`, with a hash where another tool has that name. */
export function exposedNames(tools: readonly ToolToName[]): string[] {
  const owners = new Map<string, ToolToName>()
  for (const tool of tools) {
    if (!isToolName(tool.wanted)) continue
    const other = owners.get(tool.wanted)
    if (other) throw clash(tool.wanted, other.server, tool.server)
    owners.set(tool.wanted, tool)
  }
  const sharers = Map.groupBy(tools, plainName)
  return tools.map((tool) => {
    const name = plainName(tool)
    if (owners.get(name) === tool) return name
    return tool.wanted.length > maxLength || sharers.get(name)?.length !== 1 ? withHash(name, tool) : name
  })
}

function plainName({ wanted }: ToolToName): string {
  return wanted.replaceAll(/[^a-zA-Z0-9_-]+/g, '_') || '_'
}

function withHash(name: string, { server, wanted }: ToolToName): string {
  const digest = hash('sha256', JSON.stringify([server, wanted])).slice(0, hashLength)
  return `${name.slice(0, maxLength - hashLength - 1)}_${digest}`
}

function clash(name: string, first: string, second: string): MillraceError {
  return new MillraceError(
    'config_invalid',
    `the tool servers "${first}" and "${second}" both have a tool "${name}": set "prefix" for one of them, ` +
      `such as "prefix": "${second}_", or leave it out with "deny"`,
    { data: { tool: name, first, second } },
  )
}
