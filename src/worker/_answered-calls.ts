import { MillraceError, type WireError } from '../errors/index.ts'
import { AbortSource } from '../kit/index.ts'
import type { Executor } from '../rollout/index.ts'
import type { JournalClient } from '../store/index.ts'
import { currentCall } from './_report-errors.ts'
import type { SupervisorLink } from './_supervisor-link.ts'
import type { Answer, Question } from './worker-messages.ts'

interface AnsweredCallsOptions {
  readonly link: SupervisorLink
  readonly executor: Executor
  readonly journal: JournalClient
  /** Called when nothing runs any more, before the last answer is sent. */
  readonly onLast: () => void
}

/** The calls that a worker carries out: many at once, each answered once, however it ends. */
export class AnsweredCalls {
  readonly #options: AnsweredCallsOptions
  readonly #running = new Map<number, AbortSource>()

  constructor(options: AnsweredCallsOptions) {
    this.#options = options
  }

  async answer(question: Question & { readonly call: number }): Promise<void> {
    const { call } = question
    const source = new AbortSource()
    this.#running.set(call, source)
    const work = currentCall.run(call, () => this.#carryOut(question, source.signal))
    const reply = await work.then(
      (value) => ({ kind: 'done' as const, call, value }),
      (error: unknown) => ({ kind: 'failed' as const, call, error: MillraceError.from(error, 'internal').toWire() }),
    )
    this.#running.delete(call)
    if (this.#running.size === 0) this.#options.onLast()
    this.#send(reply)
  }

  abort(call: number, reason: WireError): void {
    this.#running.get(call)?.abort(MillraceError.fromWire(reason))
  }

  async #carryOut(question: Question, signal: AbortSignal): Promise<Answer> {
    const { executor, journal } = this.#options
    if (question.kind === 'preflight') return await executor.preflight(signal)
    if (question.kind === 'score-group') return await executor.scoreGroup(question.job, signal)
    const result = await executor.run(question.job, signal)
    // The result is settled over another port: the nodes it depends on must be on disk before it gets there.
    await journal.durable()
    return result
  }

  #send(reply: Parameters<SupervisorLink['send']>[0] & { readonly call: number }): void {
    const { link } = this.#options
    try {
      link.send(reply)
    } catch (error) {
      // Something in the answer cannot be cloned; the caller must hear of it all the same.
      const { rawMessage } = MillraceError.from(error, 'internal')
      const failure = new MillraceError('env_invalid', `the result cannot leave its worker: ${rawMessage}`)
      link.send({ kind: 'failed', call: reply.call, error: failure.toWire() })
    }
  }
}
