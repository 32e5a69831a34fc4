import { MillraceError } from '../../../errors/index.ts'
import { nearestName } from '../../../kit/index.ts'
import type { KnownCatalogues } from '../catalogue/known-catalogues.ts'
import type { HeldSession, SessionUse } from './_session-source.ts'
import type { ServerAnswer, ServerCall, ServerCallDetail } from '../session/server-call.ts'
import type { ToolCatalogue } from '../catalogue/tool-catalogue.ts'
import type { ServerLease } from './tool-servers-contract.ts'

export interface ServerFailure {
  readonly server: string
  readonly error: MillraceError
}

/** The result of taking one server for a lease. */
export type TakenServer =
  | {
      readonly server: string
      readonly held: HeldSession
      readonly policy: ServerPolicy
      readonly waiting: WaitingRollouts
      readonly error?: undefined
    }
  | (ServerFailure & { readonly held?: undefined; readonly policy?: undefined; readonly waiting?: undefined })

/** How many rollouts wait for a server. */
export interface WaitingRollouts {
  count: number
}

/** What the failures of a server mean for a rollout. */
export interface ServerPolicy {
  readonly isRequired: boolean
  readonly onRestart: 'fail' | 'tell'
}

interface Hold extends ServerPolicy {
  readonly held: HeldSession
  isUsed: boolean
  running: number
  /** Whether a call was given up, which the server may still be working on. */
  isLeftBusy: boolean
  /** Calls that wait for the server: together they are one rollout that waits. */
  awaiting: number
  readonly waiting: WaitingRollouts
}

export class RolloutLease implements ServerLease {
  readonly failures: readonly ServerFailure[]
  readonly #holds = new Map<string, Hold>()
  readonly #known: KnownCatalogues
  #givenBack: Promise<void> | undefined

  constructor(taken: readonly TakenServer[], known: KnownCatalogues) {
    this.#known = known
    this.failures = taken.flatMap(({ server, error }) => (error ? [{ server, error }] : []))
    for (const { server, held, policy, waiting } of taken) {
      if (!held) continue
      this.#holds.set(server, { ...policy, held, waiting, isUsed: false, running: 0, isLeftBusy: false, awaiting: 0 })
    }
  }

  get catalogues(): readonly ToolCatalogue[] {
    return this.#known.together(Array.from(this.#holds.values(), ({ held }) => held.session.catalogue).filter(isThere))
  }

  async call(server: string, call: ServerCall): Promise<ServerAnswer> {
    if (this.#givenBack) throw new MillraceError('closed', `the rollout has given back its tool server "${server}"`)
    const hold = this.#holds.get(server)
    if (!hold) return this.#withoutServer(server)
    hold.isUsed = true
    hold.running += 1
    try {
      const answer = await this.#answer(server, hold, call)
      // Also for a server that the rollout can do without: if what it was told is lost, the rollout's work is not what it seems.
      if (answer.detail.sessionRestarted && hold.onRestart === 'fail') throw forgotten(call, answer.detail)
      return answer
    } finally {
      hold.running -= 1
    }
  }

  async #answer(server: string, hold: Hold, call: ServerCall): Promise<ServerAnswer> {
    try {
      const answer = await hold.held.session.call({ ...call, onAway: (why) => startWait(hold, call.onAway?.(why)) })
      if (answer.detail.timedOut) hold.isLeftBusy = true
      return answer
    } catch (error) {
      if (call.signal.aborted) hold.isLeftBusy = true
      if (hold.isRequired || !(error instanceof MillraceError) || error.code !== 'tool_infra') throw error
      if (error.data['sessionRestarted'] && hold.onRestart === 'fail') throw error
      return unavailable(server, error)
    }
  }

  #withoutServer(server: string): ServerAnswer {
    const failure = this.failures.find((candidate) => candidate.server === server)
    if (failure) return unavailable(server, failure.error)
    const near = nearestName(server, this.#holds.keys())
    const known = [...this.#holds.keys()].map((name) => `"${name}"`).join(', ') || 'none'
    throw new MillraceError(
      'env_invalid',
      `there is no tool server "${server}"${near === undefined ? '' : `; did you mean "${near}"?`} (configured: ${known})`,
    )
  }

  [Symbol.asyncDispose](): Promise<void> {
    if (!this.#givenBack) {
      this.#givenBack = Promise.resolve()
      for (const hold of this.#holds.values()) hold.held.giveBack(useOf(hold))
    }
    return this.#givenBack
  }
}

/** Counts the rollout as one that waits, as long as any of its calls does. */
function startWait(hold: Hold, resume: (() => void) | undefined): () => void {
  hold.awaiting += 1
  if (hold.awaiting === 1) hold.waiting.count += 1
  return () => {
    hold.awaiting -= 1
    if (hold.awaiting === 0) hold.waiting.count -= 1
    resume?.()
  }
}

function useOf({ isUsed, running, isLeftBusy }: Hold): SessionUse {
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
    `the tool server "${server}" was restarted and has forgotten what this rollout told it; set "onRestart": "tell" to let ` +
      'the model know and go on',
    { data: { server, tool, generation, attempt: attempts, sessionRestarted: true } },
  )
}

function isThere(catalogue: ToolCatalogue | undefined): catalogue is ToolCatalogue {
  return catalogue !== undefined
}
