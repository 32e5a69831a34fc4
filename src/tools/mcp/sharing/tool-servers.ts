import { availableParallelism } from 'node:os'
import { MillraceError } from '../../../errors/index.ts'
import { AbortScope, ArraySet, Resource, Semaphore, closeTogether, raced } from '../../../kit/index.ts'
import { CatalogueCache } from '../catalogue/catalogue-cache.ts'
import type { ServerEventListener } from './_held-events.ts'
import { KnownCatalogues } from '../catalogue/known-catalogues.ts'
import { NameCheck } from './name-check.ts'
import { onRestartOf } from '../config/on-restart-of.ts'
import { RolloutLease, type ServerPolicy, type TakenServer, type WaitingRollouts } from './_rollout-lease.ts'
import type { SessionSource } from './_session-source.ts'
import { sessionSourceOf } from './_session-source-of.ts'
import { ServerGate } from '../session/server-gate.ts'
import type { ServerConfig } from '../config/server-config.ts'
import type { ServerLease, ToolServerStatus } from './tool-servers-contract.ts'

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
  readonly gate: ServerGate
  readonly waiting: WaitingRollouts
}

/** The tool servers of an environment: opened once, kept, and shared as their configuration says. */
export class ToolServers extends Resource {
  readonly #sources: readonly NamedSource[]
  readonly #known = new KnownCatalogues()
  readonly #names = new NameCheck()
  readonly #onEvent: ServerEventListener
  /** The scopes of leases that wait for servers. */
  readonly #waiting = new ArraySet<AbortScope>()
  /** The one lease that is tried for all rollouts that wait to start. */
  #comeback: Promise<void> | undefined

  constructor({ servers, maxStarts = defaultMaxStarts(), onEvent = () => {} }: ToolServersOptions) {
    super()
    this.#onEvent = onEvent
    const starts = new Semaphore(maxStarts)
    const catalogues = new CatalogueCache()
    this.#sources = Object.entries(servers).map(([server, config]) => {
      const gate = new ServerGate({ server, config, onEvent })
      return {
        server,
        policy: policyOf(server, config),
        source: sessionSourceOf({ name: server, config, starts, catalogues, onEvent, gate }),
        gate,
        waiting: { count: 0 },
      }
    })
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
    return await this.#lease({ signal, onEvent, isRollout: true })
  }

  /** The servers as they are now, in the order of the configuration. */
  status(): readonly ToolServerStatus[] {
    return this.#sources.map(({ server, gate, waiting }) => {
      const { outage } = gate
      if (!outage) return { server, state: gate.hasOpened ? 'open' : 'unopened', waiting: 0, awayMs: 0 }
      const { why, ms } = outage
      return { server, state: 'away', waiting: waiting.count, awayMs: ms, awayBecause: why.rawMessage }
    })
  }

  /** These servers were open elsewhere, on another worker. If one of them cannot be opened here, it is away. */
  noteOpened(servers: readonly string[]): void {
    for (const { server, gate } of this.#sources) if (servers.includes(server)) gate.noteOpened()
  }

  /** Whether a rollout that starts now would only wait for a server that is away. */
  get isAwaited(): boolean {
    return this.#sources.some(({ gate }) => gate.waits && gate.outage !== undefined)
  }

  /**
   * Resolves when servers that were away are back, or rollouts need not wait for them any longer. Rejects with the signal's
   * reason. One lease is tried for all who wait, and given back unused.
   */
  async available(signal: AbortSignal): Promise<void> {
    const away = this.#sources.filter(({ gate }) => gate.outage !== undefined)
    for (const { waiting } of away) waiting.count += 1
    try {
      this.#comeback ??= this.#comeBack().finally(() => (this.#comeback = undefined))
      await raced(this.#comeback, signal)
    } finally {
      for (const { waiting } of away) waiting.count -= 1
    }
  }

  /** Never rejects. */
  async #comeBack(): Promise<void> {
    try {
      await using _lease = await this.#lease({ signal: this.closedSignal, isRollout: false })
    } catch {
      // The rollouts that waited try for themselves, and are told why that fails.
    }
  }

  /** `isRollout`: whether the lease is for a rollout, which counts as waiting if it waits. */
  async #lease(options: LeaseOptions & { readonly isRollout: boolean }): Promise<ServerLease> {
    this.throwIfClosed()
    using scope = new AbortScope(options.signal)
    this.#waiting.add(scope)
    try {
      // All at once: rollouts stand in the same order in all queues, so that no two can wait for what the other one has.
      const taken = await Promise.all(this.#sources.map((source) => take(source, scope, options)))
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
  { server, policy, source, waiting }: NamedSource,
  scope: AbortScope,
  { onEvent, isRollout }: { readonly onEvent?: ServerEventListener | undefined; readonly isRollout: boolean },
): Promise<TakenServer> {
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
