import type { Environment } from '../env/index.ts'
import { MillraceError } from '../errors/index.ts'
import { Resource } from '../kit/index.ts'
import type { Journal } from '../store/index.ts'
import { EnvironmentTools, type ToolContext } from './environment-tools.ts'
import { attemptEvent, runEvent } from './event-entries.ts'
import type { RolloutJob } from './job.ts'
import { NotedServers, type RecordedAnswer } from './replay-servers.ts'
import {
  declaredServers,
  noServers,
  serverConfigsOf,
  ToolServers,
  toolServerEvents,
  type ServerCalls,
  type ServerEvent,
  type ToolBox,
  type ToolCatalogue,
  type ToolServerStatus,
} from '../tools/index.ts'

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
    this.#tools = new EnvironmentTools(environment, servers)
    this.#own = { box: this.#tools.own, servers: noServers, failures: [] }
    if (!opensServers || Object.keys(servers).length === 0) return
    this.#servers = new ToolServers({ servers, onEvent: (event) => this.#onServerEvent(event) })
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

  /** Whether a rollout that starts now would only wait for a tool server that is away. */
  get isAwaited(): boolean {
    return this.#servers?.isAwaited === true
  }

  /** Resolves when tool servers that were away are back, or need not be waited for any longer; rejects with the signal's reason. */
  async available(signal: AbortSignal): Promise<void> {
    await this.#servers?.available(signal)
  }

  servers(): readonly ToolServerStatus[] {
    return this.#servers?.status() ?? []
  }

  /** These servers were open on another worker. */
  noteOpened(servers: readonly string[]): void {
    this.#servers?.noteOpened(servers)
  }

  /** The tools of a rollout that waits for no servers; undefined if it has to wait. */
  atOnce(job: RolloutJob): RolloutTools | undefined {
    if (this.#servers) return undefined
    const { cassette } = job
    if (!cassette?.catalogues) return this.#own
    const servers = this.#noted(unopenedServers, job, cassette.serverAnswers)
    return { box: this.#recallingBox(cassette.catalogues), servers, failures: [] }
  }

  /** Tools of servers that are not open: their recorded answers are recalled, and they cannot be called. */
  #recallingBox(catalogues: readonly ToolCatalogue[]): ToolBox<ToolContext> {
    const known = this.#boxes.get(catalogues)
    if (known) return known
    const box = this.#tools.withRecalled(catalogues)
    this.#boxes.set(catalogues, box)
    return box
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
      recorded: [...recorded],
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
    const box = this.#tools.withOpen(catalogues)
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
