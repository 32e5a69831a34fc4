import { availableParallelism } from 'node:os'
import { MillraceError } from '../../../errors/index.ts'
import { AbortScope, ArraySet, Resource, Semaphore, closeTogether } from '../../../kit/index.ts'
import { CatalogueCache } from '../catalogue/catalogue-cache.ts'
import type { ServerEventListener } from './_held-events.ts'
import { KnownCatalogues } from '../catalogue/known-catalogues.ts'
import { NameCheck } from './name-check.ts'
import { onRestartOf } from '../config/on-restart-of.ts'
import { RolloutLease, type ServerPolicy, type TakenServer } from './_rollout-lease.ts'
import type { SessionSource } from './_session-source.ts'
import { sessionSourceOf } from './_session-source-of.ts'
import type { ServerConfig } from '../config/server-config.ts'
import type { ServerLease } from './tool-servers-contract.ts'

export interface ToolServersOptions {
  /** The servers by name; `readServerConfigs` reads them from JSON. */
  readonly servers: Readonly<Record<string, ServerConfig>>
  /** How many servers may start at the same time; four for each processor, and at least 8, if not given. */
  readonly maxStarts?: number
  readonly onEvent?: ServerEventListener
}

export interface LeaseOptions {
  readonly signal: AbortSignal
  /** Takes the events of sessions that only this rollout holds, instead of the listener of all servers. */
  readonly onEvent?: ServerEventListener | undefined
}

interface NamedSource {
  readonly server: string
  readonly policy: ServerPolicy
  readonly source: SessionSource
}

/** The tool servers of an environment: opened once, kept, and shared as their configuration says. */
export class ToolServers extends Resource {
  readonly #sources: readonly NamedSource[]
  readonly #known = new KnownCatalogues()
  readonly #names = new NameCheck()
  readonly #onEvent: ServerEventListener
  /** The scopes of leases that wait for servers. */
  readonly #waiting = new ArraySet<AbortScope>()

  constructor({ servers, maxStarts = defaultMaxStarts(), onEvent = () => {} }: ToolServersOptions) {
    super()
    this.#onEvent = onEvent
    const starts = new Semaphore(maxStarts)
    const catalogues = new CatalogueCache()
    this.#sources = Object.entries(servers).map(([server, config]) => ({
      server,
      policy: policyOf(server, config),
      source: sessionSourceOf({ name: server, config, starts, catalogues, onEvent }),
    }))
  }

  /**
   * Opens everything that can be open before a rollout comes. Never rejects: a server that fails is tried again for a rollout.
   */
  async warm(): Promise<void> {
    await Promise.all(this.#sources.map(({ source }) => source.warm()))
  }

  /**
   * Takes all servers at once. Rejects with `tool_infra` as soon as a required one fails, with `config_invalid` where a server
   * does not list a tool that its `allow` or `deny` names, with `closed`, and with the signal's reason; nothing is held then.
   */
  async lease({ signal, onEvent }: LeaseOptions): Promise<ServerLease> {
    this.throwIfClosed()
    using scope = new AbortScope(signal)
    this.#waiting.add(scope)
    try {
      // All at once: rollouts stand in the same order in all queues, so that no two can wait for what the other one has.
      const taken = await Promise.all(this.#sources.map((source) => take(source, scope, onEvent)))
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

  #checkNames(taken: readonly TakenServer[]): void {
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
  { server, policy, source }: NamedSource,
  scope: AbortScope,
  onEvent: ServerEventListener | undefined,
): Promise<TakenServer> {
  try {
    return { server, policy, held: await source.take(scope.signal, onEvent) }
  } catch (thrown) {
    const error = infrastructureError(server, thrown)
    if (policy.isRequired) scope.abort(error)
    return { server, error }
  }
}

function policyOf(server: string, config: ServerConfig): ServerPolicy {
  return { isRequired: config.required ?? true, onRestart: onRestartOf(server, config) }
}

function infrastructureError(server: string, thrown: unknown): MillraceError {
  const error = MillraceError.from(thrown, 'tool_infra')
  if (error.code === 'tool_infra' && error.data['server'] === server) return error
  const data = { ...error.data, server }
  return new MillraceError('tool_infra', `the tool server "${server}": ${error.rawMessage}`, { data, cause: thrown })
}

/** Most of a start is waiting, but it begins with a burst of computing. */
function defaultMaxStarts(): number {
  return Math.max(8, availableParallelism() * 4)
}
