import { availableParallelism } from 'node:os'
import { MillraceError } from '../../../errors/index.ts'
import { AbortScope, ArraySet, closeTogether, withAbort, Resource, Semaphore } from '../../../kit/index.ts'
import { CatalogueCache } from '../catalogue/catalogue-cache.ts'
import { KnownCatalogues, NameCheck } from '../catalogue/tool-catalogue.ts'
import { onRestartOf, rememberSecrets, secretsOf, type ServerConfig, sharingOf } from '../config/server-config.ts'
import { McpSession, type McpSessionOptions } from '../session/mcp-session.ts'
import { ServerBreaker } from '../session/server-breaker.ts'
import { ProcessPool } from './process-pool.ts'
import {
  RolloutLease,
  type ServerLease,
  type ServerPolicy,
  type OpenedServer,
  type ToolServerStatus,
  type WaitingRollouts,
} from './rollout-lease.ts'
import { type ServerEventListener, SessionPerRollout, type SessionSource, SharedServer } from './session-source.ts'

/** Most of a start is waiting, but it begins with a burst of computing. */
const defaultMaxStarts = Math.max(8, availableParallelism() * 4)

interface ToolServersOptions {
  readonly servers: Readonly<Record<string, ServerConfig>>
  /** How many servers may start at the same time; four for each processor, and at least 8, if not given. */
  readonly maxStarts?: number
  readonly onEvent?: ServerEventListener
}

interface LeaseOptions {
  readonly signal: AbortSignal
  /** Takes the events of sessions that only this rollout holds, instead of the listener of all servers. */
  readonly onEvent?: ServerEventListener | undefined
}

interface NamedSource {
  readonly server: string
  readonly policy: ServerPolicy
  readonly source: SessionSource
  readonly breaker: ServerBreaker
  readonly waiting: WaitingRollouts
}

/** The tool servers of an environment: opened once, kept, and shared as their configuration says. */
export class ToolServers extends Resource {
  readonly #sources: readonly NamedSource[]
  readonly #known = new KnownCatalogues()
  readonly #names = new NameCheck()
  readonly #onEvent: ServerEventListener
  readonly #waiting = new ArraySet<AbortScope>()
  /** The one lease that is tried for all rollouts that wait to start. */
  #comeback: Promise<void> | undefined

  constructor({ servers, maxStarts = defaultMaxStarts, onEvent = () => {} }: ToolServersOptions) {
    super()
    this.#onEvent = onEvent
    const starts = new Semaphore(maxStarts)
    const catalogues = new CatalogueCache()
    this.#sources = Object.entries(servers).map(([server, config]) => {
      const breaker = new ServerBreaker({ server, config, onEvent })
      return {
        server,
        policy: { isRequired: config.required ?? true, onRestart: onRestartOf(server, config) },
        source: sessionSourceOf({ name: server, config, starts, catalogues, onEvent, breaker }),
        breaker,
        waiting: { count: 0 },
      }
    })
  }

  /** Opens what can be open before a rollout comes. Never rejects: a server that fails is tried again for a rollout. */
  async warm(): Promise<void> {
    await Promise.all(this.#sources.map(({ source }) => source.warm()))
  }

  /** Rejects with `tool_infra` as soon as a required server fails, and `config_invalid` for unlisted names; holds nothing then. */
  async lease(options: LeaseOptions): Promise<ServerLease> {
    return await this.#lease(options, true)
  }

  status(): readonly ToolServerStatus[] {
    return this.#sources.map(({ server, breaker, waiting }) => {
      const { outage } = breaker
      if (!outage) return { server, state: breaker.hasOpened ? 'open' : 'unopened', waiting: 0, awayMs: 0 }
      const { why, ms } = outage
      return { server, state: 'away', waiting: waiting.count, awayMs: ms, awayBecause: why.rawMessage }
    })
  }

  /** These servers were open elsewhere, on another worker. If one of them cannot be opened here, it is away. */
  noteOpened(servers: readonly string[]): void {
    for (const { server, breaker } of this.#sources) if (servers.includes(server)) breaker.noteOpened()
  }

  /** Whether a rollout that starts now would only wait for a server that is away. */
  get isAwaited(): boolean {
    return this.#sources.some(({ breaker }) => breaker.waits && breaker.outage !== undefined)
  }

  /** Resolves when servers are back, or nobody need wait any longer. One lease is tried for all who wait. */
  async available(signal: AbortSignal): Promise<void> {
    const away = this.#sources.filter(({ breaker }) => breaker.outage !== undefined)
    for (const { waiting } of away) waiting.count += 1
    try {
      this.#comeback ??= this.#comeBack().finally(() => (this.#comeback = undefined))
      await withAbort(this.#comeback, signal)
    } finally {
      for (const { waiting } of away) waiting.count -= 1
    }
  }

  /** Never rejects. */
  async #comeBack(): Promise<void> {
    try {
      await using _lease = await this.#lease({ signal: this.closedSignal }, false)
    } catch {
      // The rollouts that waited try for themselves, and are told why that fails.
    }
  }

  /** `isRollout`: whether the lease is for a rollout, which counts as waiting if it waits. */
  async #lease({ signal, onEvent }: LeaseOptions, isRollout: boolean): Promise<ServerLease> {
    this.throwIfClosed()
    using scope = new AbortScope(signal)
    this.#waiting.add(scope)
    try {
      // All at once: rollouts stand in the same order in all queues, so that no two can wait for what the other one has.
      const taken = await Promise.all(this.#sources.map((source) => take(source, scope, isRollout, onEvent)))
      const lease = new RolloutLease(taken, this.#known)
      try {
        scope.signal.throwIfAborted()
        this.#checkNames(taken)
        return lease
      } catch (error) {
        await lease[Symbol.asyncDispose]()
        throw error
      }
    } finally {
      this.#waiting.delete(scope)
    }
  }

  #checkNames(taken: readonly OpenedServer[]): void {
    for (const { server, held } of taken) {
      const catalogue = held?.session.catalogue
      const names = catalogue ? this.#names.check(catalogue) : []
      if (names.length > 0) this.#onEvent({ name: 'mcp.names_unlisted', server, names })
    }
  }

  protected override async onClose(): Promise<void> {
    for (const scope of this.#waiting) scope.abort(this.closedSignal.reason)
    await closeTogether(this.#sources.map(({ source }) => ({ close: async () => source[Symbol.asyncDispose]() })))
  }
}

/** Takes one server. Never rejects. If a required server fails, the waits for the others are aborted. */
async function take(
  { server, policy, source, waiting }: NamedSource,
  scope: AbortScope,
  isRollout: boolean,
  onEvent: ServerEventListener | undefined,
): Promise<OpenedServer> {
  waiting.count += Number(isRollout)
  try {
    return { server, policy, waiting, held: await source.take(scope.signal, onEvent) }
  } catch (thrown) {
    const error = infrastructureError(server, thrown)
    if (policy.isRequired) scope.abort(error)
    return { server, error }
  } finally {
    waiting.count -= Number(isRollout)
  }
}

function infrastructureError(server: string, thrown: unknown): MillraceError {
  const error = MillraceError.from(thrown, 'tool_infra')
  if (error.code === 'tool_infra' && error.data['server'] === server) return error
  const data = { ...error.data, server }
  return new MillraceError('tool_infra', `the tool server "${server}": ${error.rawMessage}`, { data, cause: thrown })
}

function sessionSourceOf(options: McpSessionOptions & { readonly breaker: ServerBreaker }): SessionSource {
  const { name, config, onEvent, breaker } = options
  const { idleMs, maxLifetimeMs } = config
  const sharing = sharingOf(name, config)
  if (sharing === 'shared') return new SharedServer(new McpSession(options), breaker)
  // A rollout's own session lasts as long as the rollout: replacing it meanwhile would lose what the server was told.
  const { idleMs: _idle, maxLifetimeMs: _lifetime, ...rest } = config
  const kept = rememberSecrets({ ...rest, onRestart: onRestartOf(name, config) }, secretsOf(config))
  const makeSession = (tell: ServerEventListener): McpSession =>
    new McpSession({ ...options, config: kept, onEvent: tell })
  if (sharing === 'session') return new SessionPerRollout({ makeSession, breaker, onEvent })
  return new ProcessPool({
    ...config.pool,
    makeSession,
    breaker,
    idleMs,
    maxLifetimeMs,
    onEvent,
    onRecycle: (why) => onEvent({ name: 'mcp.recycled', server: name, why }),
  })
}
