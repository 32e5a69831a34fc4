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

/** What tools get of a rollout: its context, and what was too long to show. */
export type ToolContext = RolloutContext<unknown, unknown, unknown> & { readonly outputs: ToolOutputs | undefined }

/** The tools of one rollout. */
export interface RolloutTools {
  readonly box: ToolBox<ToolContext>
  readonly servers: ServerCalls
  /** Servers that it has to do without. */
  readonly failures: readonly { readonly server: string; readonly error: MillraceError }[]
  /** Gives back what was the rollout's alone; not there if nothing was. */
  readonly release?: () => PromiseLike<void>
}

/** What a replay has in place of tool servers. */
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
  /** By the catalogues it was made from, which stay the same for as long as no server's list changes. */
  readonly #boxes = new WeakMap<readonly ToolCatalogue[], ToolBox<ToolContext>>()
  /** Of lists. Servers change theirs seldom; each is kept once. */
  readonly #recorded = new Set<string>()

  /** A replay opens no servers: their tools are known by what was recorded of them. */
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
      // Their variables are secrets and addresses, which only an open server needs.
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
    // Names that two of them use are found now, too.
    this.#boxOf(lease.catalogues)
  }

  /** The tools of a rollout that waits for no servers; undefined if it has to. */
  atOnce(job: RolloutJob): RolloutTools | undefined {
    if (this.#servers) return undefined
    const { cassette } = job
    if (!cassette?.catalogues) return this.#own
    const servers = this.#noted(unopenedServers, job, cassette.serverAnswers)
    return { box: this.#recallingBox(cassette.catalogues), servers, failures: [] }
  }

  /** The tools of a rollout whose servers had offered this, to look at. */
  offered(catalogues: readonly ToolCatalogue[]): ToolBox<ToolContext> {
    return new ToolBox<ToolContext>({ ...this.#tools, ...this.#offeredTools(catalogues) }, this.#boxOptions)
  }

  /** Tools of servers that are not open: what they answered is recalled, and they can do nothing else. */
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

  /** In the order in which the environment names the servers, and without those it does not name any more. */
  #offeredTools(catalogues: readonly ToolCatalogue[]): ReturnType<typeof mcpTools> {
    const order = Object.keys(this.#configs)
    const configured = catalogues.filter(({ server }) => order.includes(server))
    configured.sort((one, other) => order.indexOf(one.server) - order.indexOf(other.server))
    return this.#serverTools(configured)
  }

  /** What models call is recorded as messages, so it goes past the notes that are taken of other calls. */
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

  /** Rejects with `tool_infra` where a server that is needed cannot be had, and with the signal's reason. */
  async lease(job: RolloutJob, signal: AbortSignal): Promise<RolloutTools> {
    if (!this.#servers) return this.#own
    const lease = await this.#servers.lease({ signal, onEvent: (event) => this.#onServerEvent(event, job) })
    const release = async (): Promise<void> => {
      try {
        await lease[Symbol.asyncDispose]()
      } catch (error) {
        // What the rollout came to stands all the same.
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

  /** Once for each list, so that a rollout can be replayed without its servers. */
  #recordCatalogues(catalogues: readonly ToolCatalogue[]): void {
    for (const { server, digest, tools } of catalogues) {
      const list = `${server} ${digest}`
      if (this.#recorded.has(list)) continue
      this.#recorded.add(list)
      this.#record(undefined, 'mcp.catalogue', { server, digest, tools })
    }
  }

  /** Of a server that a rollout holds alone, or of one that all share. */
  #onServerEvent(event: ServerEvent, holder?: RolloutJob): void {
    if (toolServerEvents.hasSubscribers) toolServerEvents.publish(event)
    const { name, ...data } = event
    this.#record(holder, name, data)
  }

  /** An event of a rollout's, or of the run's. */
  #record(of: Pick<RolloutJob, 'id' | 'attempt'> | undefined, name: string, data: object): void {
    this.#journal.append(of ? attemptEvent(of, name, data) : runEvent(name, data))
  }

  protected onClose(): Promise<void> | undefined {
    return this.#servers?.close()
  }
}

/** Whoever starts a run can look closer at a server that does not open. */
function withAdvice(error: unknown): unknown {
  if (!(error instanceof MillraceError) || error.code !== 'tool_infra') return error
  const { server } = error.data
  const which = typeof server === 'string' ? ` --server ${server}` : ''
  const advice = `\`millrace tools doctor <environment>${which}\` shows more`
  return new MillraceError('tool_infra', `${error.rawMessage}; ${advice}`, { data: error.data, cause: error })
}
