import type { Environment, RolloutContext, TaskParts } from '../../env/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { Resource, thrownBy } from '../../kit/index.ts'
import type { Sampling } from '../../schema/index.ts'
import type { Journal } from '../../store/index.ts'
import {
  createRepairer,
  declaredServers,
  maxKeptChars,
  mcpTools,
  noServers,
  readOutputTool,
  readOutputToolName,
  refuseTaken,
  type ServerCalls,
  type ServerConfig,
  serverConfigsOf,
  type ServerEvent,
  type Tool,
  ToolBox,
  type ToolBoxOptions,
  type ToolCatalogue,
  type ToolOutputs,
  toolServerEvents,
  ToolServers,
  type ToolServerStatus,
} from '../../tools/index.ts'
import { directServers, RecordedServers, type RecordedAnswer } from '../recording/recording.ts'
import type { RolloutJob } from '../schedule/executor.ts'
import { attemptEvent, runEvent } from '../schedule/journal-entries.ts'

export interface RolloutTools {
  readonly box: ToolBox<ToolContext>
  readonly servers: ServerCalls
  readonly failures: readonly { readonly server: string; readonly error: MillraceError }[]
  /** What the task says about sampling; the run's own goes first. */
  readonly sampling?: Sampling
  /** Gives back what was leased for the rollout; left out if nothing was. */
  readonly release?: () => PromiseLike<void>
}

/** Takes the place of tool servers in a replay. */
const unopenedServers: ServerCalls = {
  call: (server) => {
    const message = `the rollout calls tool server "${server}", which a replay does not open`
    return Promise.reject(new MillraceError('replay_diverged', message))
  },
}

/** The tools that all rollouts on one thread share: the environment's own, and those of its tool servers. */
export class Toolkit extends Resource {
  readonly #tools: EnvironmentTools
  readonly #own: RolloutTools
  readonly #journal: Pick<Journal, 'append'>
  readonly #servers: ToolServers | undefined
  /** Tool boxes by the catalogues they were made from, which stay the same objects as long as no server's list changes. */
  readonly #boxes = new WeakMap<readonly ToolCatalogue[], ToolBox<ToolContext>>()
  /** The catalogues that were recorded, by server and digest. Servers change their lists seldom, so the set stays small. */
  readonly #recorded = new Set<string>()

  /** A replay opens no servers: their tools are known from recorded catalogues. */
  constructor(environment: Environment, options: unknown, journal: Pick<Journal, 'append'>, opensServers = true) {
    super()
    this.#journal = journal
    // The variables in the configs are secrets and addresses, which only an open server needs.
    const servers = opensServers
      ? serverConfigsOf(environment, options, process.env)
      : declaredServers(environment, options).servers
    this.#tools = new EnvironmentTools(environment, options, servers)
    this.#own = { box: this.#tools.own, servers: noServers, failures: [] }
    if (!opensServers || Object.keys(servers).length === 0) return
    this.#servers = new ToolServers({ servers, onEvent: (event) => this.#onServerEvent(event) })
  }

  warm(): void {
    void this.#servers?.warm()
  }

  /** Opens every server once, so that one that cannot start is found before anything is spent. */
  async preflight(signal: AbortSignal): Promise<void> {
    if (!this.#servers) return
    await using lease = await this.#servers.lease({ signal }).catch((error: unknown) => {
      throw withAdvice(error)
    })
    // A tool name that two servers use is found now, too.
    this.#boxOf(lease.catalogues)
  }

  /** Resolves when tool servers that were away are back, or need not be waited for any longer; rejects with the signal's reason. */
  async available(signal: AbortSignal): Promise<void> {
    if (this.#servers?.isAwaited) await this.#servers.available(signal)
  }

  servers(): readonly ToolServerStatus[] {
    return this.#servers?.status() ?? []
  }

  noteOpened(servers: readonly string[]): void {
    this.#servers?.noteOpened(servers)
  }

  #withoutServers(job: RolloutJob): RolloutTools {
    const { catalogues, serverAnswers } = job.recording ?? {}
    if (!catalogues) return this.#own
    const box = this.#boxes.get(catalogues) ?? this.#tools.withRecalled(catalogues)
    this.#boxes.set(catalogues, box)
    return { box, servers: this.#noted(unopenedServers, job, serverAnswers), failures: [] }
  }

  #noted(
    servers: ServerCalls,
    { id: rollout, attempt }: RolloutJob,
    recorded: readonly RecordedAnswer[] = [],
  ): ServerCalls {
    return new RecordedServers(servers, { journal: this.#journal, rollout, attempt, recorded: [...recorded] })
  }

  /** Rejects with `tool_infra` if a required server cannot be opened, and with the signal's reason. */
  async lease(job: RolloutJob, signal: AbortSignal): Promise<RolloutTools> {
    const tools = await this.#leaseShared(job, signal)
    try {
      return this.#tools.withTask(tools, job.task.data)
    } catch (error) {
      await tools.release?.()
      throw error
    }
  }

  async #leaseShared(job: RolloutJob, signal: AbortSignal): Promise<RolloutTools> {
    if (!this.#servers) return this.#withoutServers(job)
    const lease = await this.#servers.lease({ signal, onEvent: (event) => this.#onServerEvent(event, job) })
    const release = async (): Promise<void> => {
      try {
        await lease[Symbol.asyncDispose]()
      } catch (error) {
        // The rollout's result stands all the same.
        this.#record(job, 'mcp.release_failed', { cause: MillraceError.from(error, 'internal').rawMessage })
      }
    }
    try {
      const box = this.#boxOf(lease.catalogues)
      for (const { server, error } of lease.failures) {
        this.#record(job, 'mcp.missing', { server, cause: error.rawMessage })
      }
      this.#record(job, 'mcp.tools', Object.fromEntries(lease.catalogues.map(({ server, digest }) => [server, digest])))
      return { box, servers: this.#noted(lease, job), failures: lease.failures, release }
    } catch (error) {
      await release()
      throw error
    }
  }

  #boxOf(catalogues: readonly ToolCatalogue[]): ToolBox<ToolContext> {
    const known = this.#boxes.get(catalogues)
    if (known) return known
    const box = this.#tools.withOpen(catalogues)
    this.#boxes.set(catalogues, box)
    // Each list is recorded once, so that a rollout can be replayed without its servers.
    for (const { server, digest, tools } of catalogues) {
      const list = `${server} ${digest}`
      if (!this.#recorded.has(list)) this.#record(undefined, 'mcp.catalogue', { server, digest, tools })
      this.#recorded.add(list)
    }
    return box
  }

  #onServerEvent(event: ServerEvent, holder?: RolloutJob): void {
    if (toolServerEvents.hasSubscribers) toolServerEvents.publish(event)
    const { name, ...data } = event
    this.#record(holder, name, data)
  }

  #record(of: Pick<RolloutJob, 'id' | 'attempt'> | undefined, name: string, data: object): void {
    this.#journal.append(of ? attemptEvent(of, name, data) : runEvent(name, data))
  }

  protected onClose(): Promise<void> | undefined {
    return this.#servers?.close()
  }
}

/** Tells the user how to look closer at a server that does not open. */
function withAdvice(error: unknown): unknown {
  if (!(error instanceof MillraceError) || error.code !== 'tool_infra') return error
  const { server } = error.data
  const which = typeof server === 'string' ? ` --server ${server}` : ''
  const advice = `\`millrace tools doctor <environment>${which}\` shows more`
  return new MillraceError('tool_infra', `${error.rawMessage}; ${advice}`, { data: error.data, cause: error })
}

type ToolContext = RolloutContext<unknown, unknown, unknown> & { readonly outputs: ToolOutputs | undefined }

type ServerTools = ReturnType<typeof mcpTools>

/** Makes the tool boxes of an environment: of its own tools, alone or with those that its tool servers list. */
class EnvironmentTools {
  readonly own: ToolBox<ToolContext>
  readonly #tools: Readonly<Record<string, Tool<ToolContext>>>
  readonly #configs: Readonly<Record<string, ServerConfig>>
  readonly #options: ToolBoxOptions
  readonly #partsOf: (task: unknown) => TaskParts<ToolContext> | undefined

  constructor(environment: Environment, options: unknown, configs: Readonly<Record<string, ServerConfig>>) {
    const { tools, repair, toolOutput } = environment
    this.#partsOf = (task) => environment.forTask?.(task, options)
    if (toolOutput?.spill && tools && Object.hasOwn(tools, readOutputToolName)) {
      throw new MillraceError(
        'env_invalid',
        `\`${readOutputToolName}\` is reserved for the tool that reads long outputs: rename the environment's tool`,
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

  /** With what the task brings along. */
  withTask<Tools extends Pick<RolloutTools, 'box'>>(
    shared: Tools,
    task: unknown,
  ): Tools & Pick<RolloutTools, 'sampling'> {
    let parts: TaskParts<ToolContext> | undefined
    try {
      parts = this.#partsOf(task)
    } catch (error) {
      throw thrownBy('forTask', error, 'setup_failed')
    }
    if (!parts) return shared
    const { tools, sampling } = parts
    return { ...shared, ...(tools && { box: shared.box.with(tools) }), ...(sampling && { sampling }) }
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

  /** The model's calls are recorded as messages, so they bypass `RecordedServers`. */
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

/** The tools that a rollout of an environment had, to look at: their servers are not opened, and no tool can be called. */
export function toolsWithoutServers(
  environment: Environment,
  options: unknown,
  { catalogues = [], task }: { readonly catalogues?: readonly ToolCatalogue[]; readonly task: unknown },
): ToolBox<ToolContext> {
  const tools = new EnvironmentTools(environment, options, declaredServers(environment, options).servers)
  return tools.withTask({ box: tools.withRecorded(catalogues) }, task).box
}
