import type { Environment, RolloutContext } from '../env/index.ts'
import { MillraceError } from '../errors/index.ts'
import {
  createRepairer,
  maxKeptChars,
  mcpTools,
  readOutputTool,
  readOutputToolName,
  refuseTaken,
  ToolBox,
  type ServerConfig,
  type Tool,
  type ToolBoxOptions,
  type ToolCatalogue,
  type ToolOutputs,
} from '../tools/index.ts'
import { directServers } from './replay-servers.ts'

/** What tools get of a rollout: its context, and its kept outputs. */
export type ToolContext = RolloutContext<unknown, unknown, unknown> & { readonly outputs: ToolOutputs | undefined }

type ServerTools = ReturnType<typeof mcpTools>

/** Makes the tool boxes of an environment: of its own tools, alone or with those that its tool servers list. */
export class EnvironmentTools {
  /** The environment's own tools. */
  readonly own: ToolBox<ToolContext>
  readonly #tools: Readonly<Record<string, Tool<ToolContext>>>
  readonly #configs: Readonly<Record<string, ServerConfig>>
  readonly #options: ToolBoxOptions

  constructor({ tools, repair, toolOutput }: Environment, configs: Readonly<Record<string, ServerConfig>>) {
    if (toolOutput?.spill && tools && Object.hasOwn(tools, readOutputToolName)) {
      throw new MillraceError(
        'env_invalid',
        `\`${readOutputToolName}\` reads long outputs here: name the environment's tool otherwise`,
      )
    }
    this.#tools = { ...tools, ...(toolOutput?.spill && { [readOutputToolName]: readOutputTool }) }
    this.#configs = configs
    this.#options = {
      makeRepairer: repair && ((targets) => createRepairer(repair, targets)),
      maxOutputChars: toolOutput?.spill ? maxKeptChars : toolOutput?.maxChars,
    }
    this.own = this.#boxWith({})
  }

  /** With the tools of servers that are open. Throws `config_invalid` if one has the name of the environment's own. */
  withOpen(catalogues: readonly ToolCatalogue[]): ToolBox<ToolContext> {
    const ofServers = this.#serverTools(catalogues)
    refuseTaken(ofServers, this.#tools)
    return this.#boxWith(ofServers)
  }

  /** With the tools that servers had listed when a rollout was recorded, to look at. */
  withRecorded(catalogues: readonly ToolCatalogue[]): ToolBox<ToolContext> {
    return this.#boxWith(this.#recordedTools(catalogues))
  }

  /** Like `withRecorded`, for a replay: the servers are not open, so the recorded answers of all their tools are recalled. */
  withRecalled(catalogues: readonly ToolCatalogue[]): ToolBox<ToolContext> {
    const tools = Object.entries(this.#recordedTools(catalogues)).map(
      ([name, tool]) => [name, { ...tool, resume: 'reuse' as const }] as const,
    )
    return this.#boxWith(Object.fromEntries(tools))
  }

  #boxWith(ofServers: ServerTools): ToolBox<ToolContext> {
    return new ToolBox<ToolContext>({ ...this.#tools, ...ofServers }, this.#options)
  }

  /** In the order in which the environment names the servers, without servers it no longer names. */
  #recordedTools(catalogues: readonly ToolCatalogue[]): ServerTools {
    const order = Object.keys(this.#configs)
    const configured = catalogues.filter(({ server }) => order.includes(server))
    configured.sort((one, other) => order.indexOf(one.server) - order.indexOf(other.server))
    return this.#serverTools(configured)
  }

  /** The model's calls are recorded as messages, so they bypass `NotedServers`. */
  #serverTools(catalogues: readonly ToolCatalogue[]): ServerTools {
    const tools = mcpTools(catalogues, this.#configs)
    for (const [name, tool] of Object.entries(tools)) {
      tools[name] = {
        ...tool,
        run: (args, { servers, signal, budget }) =>
          tool.run(args, { servers: directServers(servers), signal, ...(budget && { budget }) }),
      }
    }
    return tools
  }
}
