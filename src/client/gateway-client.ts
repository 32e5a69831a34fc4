import { MillraceError } from '../errors/index.ts'
import type { SessionOptionsInput, SessionView } from '../gateway/index.ts'
import { Resource } from '../kit/index.ts'
import type {
  BackendList,
  FleetReply,
  PauseRequest,
  ResumeRequest,
  RewardedSession,
  RewardRequest,
  StartedGroup,
  VersionRequest,
} from '../serve/index.ts'
import { GatewayHttp, type GatewayClientOptions } from './gateway-http.ts'

export type ListedBackend = BackendList['backends'][number]
export type BackendAnswer = FleetReply['backends'][number]

interface Abortable {
  readonly signal?: AbortSignal
}

/** A pause that has begun. A resume with its epoch ends no later pause. */
export interface PauseReply {
  readonly epoch: number
  readonly backends: readonly BackendAnswer[]
}

export interface WeightUpdate extends Omit<PauseRequest, 'epoch'>, Abortable {
  /** Of the new weights. */
  readonly version: string
}

const defaultPauseMs = 10 * 60_000
/** Epochs grow by steps of chance, so that two programs that pause at once do not have the same one. */
const largestStep = 1024
/** How long an aborted update tries to resume the backends. After that, the lease of the pause ends it. */
const abortedRetryForMs = 5000

/**
 * A client of a gateway, with an admin's key: sessions for agents, and updates of the weights of its backends. A call whose
 * connection is lost is made again, except for the start of sessions.
 *
 *     await using gateway = new GatewayClient({ url: 'http://127.0.0.1:8787', key })
 *     await gateway.weightUpdate({ version: '8', mode: 'continue' }, () => loadWeights('checkpoints/8'))
 */
export class GatewayClient extends Resource {
  readonly #http: GatewayHttp

  constructor(options: GatewayClientOptions) {
    super()
    this.#http = new GatewayHttp(options)
  }

  /** Starts one session, or the `groupSize` sessions of a group. An unused session ends by itself. */
  startGroup(options: SessionOptionsInput = {}, { signal }: Abortable = {}): Promise<StartedGroup> {
    return this.#http.call('POST', '/v1/sessions', { body: options, isRepeatable: false, signal })
  }

  session(id: string, { signal }: Abortable = {}): Promise<SessionView> {
    return this.#http.call('GET', sessionPath(id), { signal })
  }

  /** Rewards a session, or one reply in it. The last reward counts, also after the end of the session. */
  reward(id: string, reward: RewardRequest, { signal }: Abortable = {}): Promise<RewardedSession> {
    return this.#http.call('POST', `${sessionPath(id)}/rewards`, { body: reward, signal })
  }

  endSession(id: string, { signal }: Abortable = {}): Promise<SessionView> {
    return this.#http.call('POST', `${sessionPath(id)}/end`, { body: {}, signal })
  }

  async backends({ signal }: Abortable = {}): Promise<readonly ListedBackend[]> {
    return (await this.#list(signal)).backends
  }

  /**
   * Resolves when the backends are paused: with mode `finish`, when their replies have ended. The `epoch` of a pause that has
   * begun renews it. Rejects with `BackendsFailed` if some could not be paused: the others are.
   */
  async pause({ signal, ...request }: PauseRequest & Abortable = {}): Promise<PauseReply> {
    const epoch = request.epoch ?? (await this.#nextEpoch(signal))
    const { ttlMs = defaultPauseMs } = request
    // The gateway answers when the replies of engines have ended, and when the lease ends at the latest.
    const timeoutMs = ttlMs + this.#http.timeoutMs
    const { backends } = await this.#order('pause', { ...request, epoch, ttlMs }, { signal, timeoutMs })
    return { epoch, backends }
  }

  /** Ends the pause of this epoch, or whatever pause there is. */
  async resume({ signal, ...request }: ResumeRequest & Abortable = {}): Promise<readonly BackendAnswer[]> {
    return (await this.#order('resume', request, { signal })).backends
  }

  /** Recorded tokens have this version from now on, if the engine does not say its own. */
  async setVersion({ signal, ...request }: VersionRequest & Abortable): Promise<readonly BackendAnswer[]> {
    return (await this.#order('version', request, { signal })).backends
  }

  /**
   * Pauses the backends, has `load` load the weights into the engines, sets the version, and resumes the same pause in every
   * case. If some backends cannot be paused, `load` is not called; if it rejects, the version stays.
   */
  async weightUpdate<Result>(
    { version, signal, ...request }: WeightUpdate,
    load: (pause: PauseReply) => Promise<Result> | Result,
  ): Promise<Result> {
    const epoch = await this.#nextEpoch(signal)
    const forBackends = request.backends && { backends: request.backends }
    let result: Result
    let answers: readonly BackendAnswer[]
    try {
      result = await load(await this.pause({ ...request, epoch, ...(signal && { signal }) }))
      signal?.throwIfAborted()
      answers = await this.setVersion({ version, ...forBackends, ...(signal && { signal }) })
    } catch (error) {
      // The error that is thrown is the first one: without this resume, the lease ends the pause.
      const retryForMs = signal?.aborted ? { retryForMs: abortedRetryForMs } : {}
      await this.#order('resume', { epoch, ...forBackends }, retryForMs).catch(() => undefined)
      throw error
    }
    await this.resume({ epoch, ...forBackends })
    refuseEarlyEnd(answers, epoch)
    return result
  }

  protected onClose(): Promise<void> {
    return this.#http.close(this.closedSignal.reason)
  }

  #list(signal: AbortSignal | undefined): Promise<BackendList> {
    return this.#http.call('GET', '/v1/backends', { signal })
  }

  /** Chosen here, so that a pause can be sent again after a lost connection and is still the same pause. */
  async #nextEpoch(signal: AbortSignal | undefined): Promise<number> {
    const { epoch } = await this.#list(signal)
    return epoch + 1 + Math.floor(Math.random() * largestStep)
  }

  #order(
    what: 'pause' | 'resume' | 'version',
    body: PauseRequest | ResumeRequest | VersionRequest,
    options: { readonly signal?: AbortSignal | undefined; readonly timeoutMs?: number; readonly retryForMs?: number },
  ): Promise<FleetReply> {
    return this.#http.call('POST', `/v1/backends/${what}`, { body, ...options })
  }
}

/** The backends have served between the end of the pause and the new version. */
function refuseEarlyEnd(answers: readonly BackendAnswer[], epoch: number): void {
  const early = answers.filter(({ status }) => status === 'serving').map(({ backend }) => backend)
  if (early.length === 0) return
  const message = `the pause had ended before the update did, at ${early.join(', ')}; give it a longer ttlMs`
  throw new MillraceError('usage', message, { data: { epoch } })
}

function sessionPath(id: string): string {
  return `/v1/sessions/${encodeURIComponent(id)}`
}
