import type { CountingDialect } from '../../dialects/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { AbortSource } from '../../kit/index.ts'
import type { CallHooks } from '../../inference/index.ts'
import { clientGone, waitedTooLong } from '../_refusals.ts'
import type { ClientReply } from './client-reply.ts'
import { goneStatus, type InteractionEnd } from './live-interaction.ts'
import { Wait, type Patience } from './_patience.ts'
import type { Question } from './_question.ts'
import { sendError, sendWhole } from './_send-reply.ts'

export interface LiveCountOptions {
  readonly question: Question
  readonly counting: CountingDialect
  readonly client: ClientReply
  readonly patience: Patience
}

/** One client's question how many tokens a prompt has, given up when the client goes. */
export class LiveCount implements CallHooks {
  readonly #question: Question
  readonly #counting: CountingDialect
  readonly #client: ClientReply
  readonly #patience: Patience
  readonly #abort = new AbortSource()
  readonly #wait: Wait

  constructor({ question, counting, client, patience }: LiveCountOptions) {
    this.#question = question
    this.#counting = counting
    this.#client = client
    this.#patience = patience
    this.#wait = new Wait(patience.maxWaitMs, (leftMs) => {
      const { maxWaitMs } = patience
      this.abort(waitedTooLong(question.model.name, { maxWaitMs, leftMs, cause: this.#wait.cause }))
    })
  }

  get signal(): AbortSignal {
    return this.#abort.signal
  }

  /** Settles when the client has its answer. Never rejects. */
  async start(): Promise<InteractionEnd> {
    const client = this.#client
    const { model, dialect } = this.#question
    if (client.isGone) this.#onClientGone()
    else client.onGone(this.#onClientGone)
    try {
      const tokens = await model.client.countTokens(this.#question.toModel(), this)
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

  /** Aborts if the question waits for a backend just now. */
  abortWaiting(reason: MillraceError): void {
    if (this.#wait.isOn) this.abort(reason)
  }

  readonly #onClientGone = (): void => {
    this.abort(clientGone(this.#wait.cause))
  }

  onWaitStart(): void {
    this.#wait.start()
    if (this.#patience.end) this.abort(this.#patience.end)
  }

  onWaitEnd(): void {
    this.#wait.stop()
  }

  onFailedTry(_ms: number, error: unknown): void {
    this.#wait.refused(error)
  }
}
