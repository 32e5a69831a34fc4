import type { Environment, RolloutContext } from '../env/index.ts'
import { MillraceError } from '../errors/index.ts'
import { Resource } from '../kit/index.ts'
import type { Journal } from '../store/index.ts'
import { attemptEvent, runEvent } from './event-entries.ts'
import type { RolloutJob } from './job.ts'
import { directServers, NotedServers, type RecordedAnswer } from './replay-servers.ts'
import {
  createRepairer,
  declaredServers,
  maxKeptChars,
  mcpTools,
  noServers,
  readOutputTool,
  readOutputToolName,
  refuseTaken,
  serverConfigsOf,
  ToolBox,
  ToolServers,
  type ServerCalls,
  toolServerEvents,
  type ServerConfig,
  type ServerEvent,
  type Tool,
  type ToolBoxOptions,
  type ToolCatalogue,
  type ToolOutputs,
} from '../tools/index.ts'

/** What tools get of a rollout: its context, and its kept outputs. */
export type ToolContext = RolloutContext<unknown, unknown, unknown> & { readonly outputs: ToolOutputs | undefined }

/** The tools of one rollout. */
export interface RolloutTools {
  readonly box: ToolBox<ToolContext>
  readonly servers: ServerCalls
  /** The servers that the rollout has to do without. */
  readonly failures: readonly { readonly server: string; readonly error: MillraceError }[]
  /** Gives back what was leased for the rollout; left out if nothing was. */
  readonly release?: () => PromiseLike<void>
}

/** Takes the place of tool servers in a replay. */
const unopenedServers: ServerCalls = {
  call: (server) => {
    const message = `tool server "${server}" was to be called, which a replay does not open`
    return Promise.reject(new MillraceError('replay_diverged', message))
  },
}

/** The tools that all rollouts on one thread share: the environment's own, and those of its tool servers. */
export class Toolkit extends Resource {
  readonly #own: RolloutTools
  readonly #tools: Readonly<Record<string, Tool<ToolContext>>>
  readonly #boxOptions: ToolBoxOptions
  readonly #journal: Journal
  readonly #configs: Readonly<Record<string, ServerConfig>>
  readonly #servers: ToolServers | undefined
  /** Tool boxes by the catalogues they were made from, which stay the same objects as long as no server's list changes. */
  readonly #boxes = new WeakMap<readonly ToolCatalogue[], ToolBox<ToolContext>>()
  /** The catalogues that were recorded, by server and digest. Servers change their lists seldom, so the set stays small. */
  readonly #recorded = new Set<string>()

  /** A replay opens no servers: their tools are known from recorded catalogues. */
  constructor(environment: Environment, options: unknown, journal: Journal, opensServers = true) {
    super()
    const { repair, toolOutput } = environment
    this.#journal = journal
    if (toolOutput?.spill && environment.tools && Object.hasOwn(environment.tools, readOutputToolName)) {
      throw new MillraceError(
        'env_invalid',
        `\`${readOutputToolName}\` reads long outputs here: name the environment's tool otherwise`,
      )
    }
    this.#tools = { ...environment.tools, ...(toolOutput?.spill && { [readOutputToolName]: readOutputTool }) }
    this.#boxOptions = {
      makeRepairer: repair && ((targets) => createRepairer(repair, targets)),
      maxOutputChars: toolOutput?.spill ? maxKeptChars : toolOutput?.maxChars,
    }
    this.#own = { box: new ToolBox(this.#tools, this.#boxOptions), servers: noServers, failures: [] }
    if (!opensServers) {
      // The variables in the configs are secrets and addresses, which only an open server needs.
      this.#configs = declaredServers(environment, options).servers
      return
    }
    this.#configs = serverConfigsOf(environment, options, process.env)
    if (Object.keys(this.#configs).length === 0) return
    this.#servers = new ToolServers({
      servers: this.#configs,
      onEvent: (event) => this.#onServerEvent(event),
    })
  }

  /** Starts what rollouts will need, without waiting for it. */
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

  /** The tools of a rollout that waits for no servers; undefined if it has to wait. */
  atOnce(job: RolloutJob): RolloutTools | undefined {
    if (this.#servers) return undefined
    const { cassette } = job
    if (!cassette?.catalogues) return this.#own
    const servers = this.#noted(unopenedServers, job, cassette.serverAnswers)
    return { box: this.#recallingBox(cassette.catalogues), servers, failures: [] }
  }

  /** The tools of a rollout whose servers had offered these catalogues, to look at. */
  offered(catalogues: readonly ToolCatalogue[]): ToolBox<ToolContext> {
    return new ToolBox<ToolContext>({ ...this.#tools, ...this.#offeredTools(catalogues) }, this.#boxOptions)
  }

  /** Tools of servers that are not open: their recorded answers are recalled, and they cannot be called. */
  #recallingBox(catalogues: readonly ToolCatalogue[]): ToolBox<ToolContext> {
    const known = this.#boxes.get(catalogues)
    if (known) return known
    const tools = Object.entries(this.#offeredTools(catalogues)).map(
      ([name, tool]) => [name, { ...tool, resume: 'reuse' as const }] as const,
    )
    const box = new ToolBox<ToolContext>({ ...this.#tools, ...Object.fromEntries(tools) }, this.#boxOptions)
    this.#boxes.set(catalogues, box)
    return box
  }

  /** The catalogues' tools, in the order in which the environment names the servers, without servers it no longer names. */
  #offeredTools(catalogues: readonly ToolCatalogue[]): ReturnType<typeof mcpTools> {
    const order = Object.keys(this.#configs)
    const configured = catalogues.filter(({ server }) => order.includes(server))
    configured.sort((one, other) => order.indexOf(one.server) - order.indexOf(other.server))
    return this.#serverTools(configured)
  }

  /** The model's calls are recorded as messages, so they bypass `NotedServers`. */
  #serverTools(catalogues: readonly ToolCatalogue[]): ReturnType<typeof mcpTools> {
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

  #noted(
    servers: ServerCalls,
    { id: rollout, attempt, recorded: before }: RolloutJob,
    recorded: readonly RecordedAnswer[] = [],
  ): ServerCalls {
    return new NotedServers(servers, {
      journal: this.#journal,
      rollout,
      attempt,
      recorded,
      earlier: before?.serverCalls,
    })
  }

  /** Rejects with `tool_infra` if a required server cannot be opened, and with the signal's reason. */
  async lease(job: RolloutJob, signal: AbortSignal): Promise<RolloutTools> {
    if (!this.#servers) return this.#own
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
    const ofServers = this.#serverTools(catalogues)
    refuseTaken(ofServers, this.#tools)
    const box = new ToolBox<ToolContext>({ ...this.#tools, ...ofServers }, this.#boxOptions)
    this.#boxes.set(catalogues, box)
    this.#recordCatalogues(catalogues)
    return box
  }

  /** Records each list once, so that a rollout can be replayed without its servers. */
  #recordCatalogues(catalogues: readonly ToolCatalogue[]): void {
    for (const { server, digest, tools } of catalogues) {
      const list = `${server} ${digest}`
      if (this.#recorded.has(list)) continue
      this.#recorded.add(list)
      this.#record(undefined, 'mcp.catalogue', { server, digest, tools })
    }
  }

  /** Records an event of a server that `holder` has alone, or of one that all rollouts share. */
  #onServerEvent(event: ServerEvent, holder?: RolloutJob): void {
    if (toolServerEvents.hasSubscribers) toolServerEvents.publish(event)
    const { name, ...data } = event
    this.#record(holder, name, data)
  }

  /** Records an event of a rollout, or of the run. */
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
