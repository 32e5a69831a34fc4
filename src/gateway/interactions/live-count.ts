import type { CountingDialect } from '../../dialects/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { AbortSource } from '../../kit/index.ts'
import type { CallHooks } from '../../inference/index.ts'
import { clientGone } from '../_refusals.ts'
import type { ClientReply } from './client-reply.ts'
import { goneStatus, type InteractionEnd, type WaitRules } from './live-interaction.ts'
import type { UpstreamRequest } from './_upstream-request.ts'
import { sendError, sendWhole } from './_send-reply.ts'

export interface LiveCountOptions {
  readonly upstream: UpstreamRequest
  readonly counting: CountingDialect
  readonly client: ClientReply
  readonly waitRules: WaitRules
}

/** One client's question how many tokens a prompt has, given up when the client goes. */
export class LiveCount implements CallHooks {
  readonly #upstream: UpstreamRequest
  readonly #counting: CountingDialect
  readonly #client: ClientReply
  readonly #waitRules: WaitRules
  readonly #abort = new AbortSource()
  #isWaiting = false
  #lastFailure: MillraceError | undefined

  constructor({ upstream, counting, client, waitRules }: LiveCountOptions) {
    this.#upstream = upstream
    this.#counting = counting
    this.#client = client
    this.#waitRules = waitRules
  }

  get signal(): AbortSignal {
    return this.#abort.signal
  }

  /** Settles when the client has its answer. Never rejects. */
  async start(): Promise<InteractionEnd> {
    const client = this.#client
    const { model, dialect } = this.#upstream
    if (client.isGone) this.#onClientGone()
    else client.onGone(this.#onClientGone)
    try {
      const tokens = await model.client.countTokens(this.#upstream.toModel(), this)
      sendWhole(client, JSON.stringify(this.#counting.whole(tokens)))
      return { answer: { kind: 'counted' }, status: client.isGone ? goneStatus : 200 }
    } catch (thrown) {
      const error = MillraceError.from(thrown, 'internal')
      const status = client.isGone ? goneStatus : sendError(client, dialect, error)
      return { answer: { kind: 'broken', error }, status }
    } finally {
      client.onGone(undefined)
    }
  }

  abort(reason: MillraceError): void {
    this.#abort.abort(reason)
  }

  /** Aborts if the request waits for a backend just now. */
  abortWaiting(reason: MillraceError): void {
    if (this.#isWaiting) this.abort(reason)
  }

  readonly #onClientGone = (): void => {
    this.abort(clientGone(this.#isWaiting ? this.#lastFailure : undefined))
  }

  onWaitStart(): void {
    this.#isWaiting = true
    if (this.#waitRules.end) this.abort(this.#waitRules.end)
  }

  onWaitEnd(): void {
    this.#isWaiting = false
  }

  onFailedTry(_ms: number, error: MillraceError): void {
    this.#lastFailure = error
  }
}
