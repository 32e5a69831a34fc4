import { MillraceError } from '../../errors/index.ts'
import { jsonSchemaParameters, type JsonSchemaParameters } from '../json-schema-parameters.ts'
import { ToolAnswer } from '../tool-answer.ts'
import type { Tool } from '../tool.ts'
import { exposedNames } from './_exposed-names.ts'
import { longestWaitOf, serverDefaults } from './config/server-defaults.ts'
import type { ServerAnswer } from './session/server-call.ts'
import type { ServerConfig } from './config/server-config.ts'
import { sharingOf } from './config/sharing-of.ts'
import type { ServerTool, ToolCatalogue } from './catalogue/tool-catalogue.ts'
import type { ServerCalls } from './sharing/tool-servers-contract.ts'

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

function toToolAnswer({ content, structured, isError, detail }: ServerAnswer): ToolAnswer {
  // A server with an output schema need not repeat its structured output as text.
  const output = content.length === 0 && structured !== undefined ? JSON.stringify(structured) : content
  return new ToolAnswer(detail.sessionRestarted ? withRestart(output, detail.server) : output, {
    isError,
    detail: { ...detail },
  })
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
