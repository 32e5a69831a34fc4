import { MillraceError } from '../../../errors/index.ts'
import { nearestName } from '../../../kit/index.ts'
import type { KnownCatalogues, ToolCatalogue } from '../catalogue/tool-catalogue.ts'
import type { ServerAnswer, ServerCall, ServerCallDetail } from '../transports/pending-calls.ts'
import type { SessionLease, SessionUse } from './session-source.ts'

interface ServerFailure {
  readonly server: string
  readonly error: MillraceError
}

export type OpenedServer =
  | {
      readonly server: string
      readonly held: SessionLease
      readonly policy: ServerPolicy
      readonly waiting: WaitingRollouts
      readonly error?: undefined
    }
  | (ServerFailure & { readonly held?: undefined; readonly policy?: undefined; readonly waiting?: undefined })

export interface WaitingRollouts {
  count: number
}

export interface ServerPolicy {
  readonly isRequired: boolean
  readonly onRestart: 'fail' | 'tell'
}

interface LeasedServer extends ServerPolicy {
  readonly held: SessionLease
  isUsed: boolean
  running: number
  /** Whether a call was abandoned, which the server may still be working on. */
  isLeftBusy: boolean
  /** Calls that wait for the server: together they are one rollout that waits. */
  awaiting: number
  readonly waiting: WaitingRollouts
}

export class RolloutLease implements ServerLease {
  readonly failures: readonly ServerFailure[]
  readonly #leased = new Map<string, LeasedServer>()
  readonly #known: KnownCatalogues
  #givenBack: Promise<void> | undefined

  constructor(taken: readonly OpenedServer[], known: KnownCatalogues) {
    this.#known = known
    this.failures = taken.flatMap(({ server, error }) => (error ? [{ server, error }] : []))
    for (const { server, held, policy, waiting } of taken) {
      if (!held) continue
      this.#leased.set(server, { ...policy, held, waiting, isUsed: false, running: 0, isLeftBusy: false, awaiting: 0 })
    }
  }

  get catalogues(): readonly ToolCatalogue[] {
    return this.#known.together(
      Array.from(this.#leased.values(), ({ held }) => held.session.catalogue).filter((list) => list !== undefined),
    )
  }

  async call(server: string, call: ServerCall): Promise<ServerAnswer> {
    if (this.#givenBack)
      throw new MillraceError('closed', `the rollout has already released its tool server "${server}"`)
    const lease = this.#leased.get(server)
    if (!lease) return this.#withoutServer(server)
    lease.isUsed = true
    lease.running += 1
    try {
      const answer = await this.#answer(server, lease, call)
      // Also for a server that the rollout can do without: if what it was told is lost, the rollout's work is not what it seems.
      if (answer.detail.sessionRestarted && lease.onRestart === 'fail') throw forgotten(call, answer.detail)
      return answer
    } finally {
      lease.running -= 1
    }
  }

  async #answer(server: string, lease: LeasedServer, call: ServerCall): Promise<ServerAnswer> {
    try {
      const answer = await lease.held.session.call({ ...call, onAway: (why) => startWait(lease, call.onAway?.(why)) })
      if (answer.detail.timedOut) lease.isLeftBusy = true
      return answer
    } catch (error) {
      if (call.signal.aborted) lease.isLeftBusy = true
      if (lease.isRequired || !(error instanceof MillraceError) || error.code !== 'tool_infra') throw error
      if (error.data['sessionRestarted'] && lease.onRestart === 'fail') throw error
      return unavailable(server, error)
    }
  }

  #withoutServer(server: string): ServerAnswer {
    const failure = this.failures.find((candidate) => candidate.server === server)
    if (failure) return unavailable(server, failure.error)
    const near = nearestName(server, this.#leased.keys())
    const known = [...this.#leased.keys()].map((name) => `"${name}"`).join(', ') || 'none'
    throw new MillraceError(
      'env_invalid',
      `there is no tool server "${server}"${near === undefined ? '' : `; did you mean "${near}"?`} (configured: ${known})`,
    )
  }

  [Symbol.asyncDispose](): Promise<void> {
    if (!this.#givenBack) {
      this.#givenBack = Promise.resolve()
      for (const lease of this.#leased.values()) lease.held.giveBack(useOf(lease))
    }
    return this.#givenBack
  }
}

/** Counts the rollout as one that waits, as long as any of its calls does. */
function startWait(lease: LeasedServer, resume: (() => void) | undefined): () => void {
  lease.awaiting += 1
  if (lease.awaiting === 1) lease.waiting.count += 1
  return () => {
    lease.awaiting -= 1
    if (lease.awaiting === 0) lease.waiting.count -= 1
    resume?.()
  }
}

function useOf({ isUsed, running, isLeftBusy }: LeasedServer): SessionUse {
  if (running > 0 || isLeftBusy) return 'busy'
  return isUsed ? 'used' : 'unused'
}

/** The answer of a missing server that the rollout can do without: the rollout goes on, and its model is told. */
function unavailable(server: string, { rawMessage, data }: MillraceError): ServerAnswer {
  const { generation, attempt, sessionRestarted } = data
  const detail = {
    server,
    generation: typeof generation === 'number' ? generation : 0,
    attempts: typeof attempt === 'number' ? attempt : 0,
    // A restart is reported once; dropped here, nobody would ever hear of it.
    ...(sessionRestarted === true && { sessionRestarted }),
  }
  return { content: `Error: the tool server "${server}" is not available: ${rawMessage}`, isError: true, detail }
}

function forgotten({ tool }: ServerCall, detail: ServerCallDetail): MillraceError {
  const { server, generation, attempts } = detail
  return new MillraceError(
    'tool_infra',
    `the tool server "${server}" was restarted and has lost the state of this rollout; set "onRestart": "tell" to tell ` +
      'the model and continue',
    { data: { server, tool, generation, attempt: attempts, sessionRestarted: true } },
  )
}

/** Tool servers as a rollout sees them. */
export interface ServerCalls {
  /** Rejects with the signal's reason, and with `tool_infra`, which ends the attempt, where a required server is gone. */
  call(server: string, call: ServerCall): Promise<ServerAnswer>
}

/** One tool server, as the rollouts of one worker, or of a run, find it. */
export interface ToolServerStatus {
  readonly server: string
  /** `away`: it was open, cannot be opened again, and rollouts that need it wait. */
  readonly state: 'unopened' | 'open' | 'away'
  readonly waiting: number
  readonly awayMs: number
  readonly awayBecause?: string
}

/** How many rollouts wait for servers that are away, at least: one that waits for two servers is counted by both. */
export function rolloutsWaiting(servers: readonly Pick<ToolServerStatus, 'waiting'>[]): number {
  return servers.reduce((most, { waiting }) => Math.max(most, waiting), 0)
}

/** One rollout's hold on the tool servers of its environment. Disposing of it gives back the rollout's own sessions. */
export interface ServerLease extends ServerCalls, AsyncDisposable {
  /** In the order of the configuration. The same array for as long as no server's list changes. */
  readonly catalogues: readonly ToolCatalogue[]
  /** Servers that failed to open and that the rollout can do without. */
  readonly failures: readonly { readonly server: string; readonly error: MillraceError }[]
}

export const noServers: ServerCalls = {
  call: (server) => {
    const message = `there is no tool server "${server}": the environment has no \`mcpServers\``
    return Promise.reject(new MillraceError('env_invalid', message))
  },
}
