import { MillraceError, type WireError } from '../errors/index.ts'
import { AbortSource } from '../kit/index.ts'
import type { Executor } from '../rollout/index.ts'
import type { JournalClient } from '../store/index.ts'
import { currentCall } from './_report-errors.ts'
import type { SupervisorLink } from './_supervisor-link.ts'
import type { WorkerResult, WorkerRequest } from './worker-messages.ts'

interface CallHandlerOptions {
  readonly link: SupervisorLink
  readonly executor: Executor
  readonly journal: JournalClient
  /** Called when nothing runs any more, before the last answer is sent. */
  readonly onLast: () => void
}

/** Carries out the calls of a worker: many at once, each answered once, however it ends. */
export class CallHandler {
  readonly #options: CallHandlerOptions
  readonly #running = new Map<number, AbortSource>()

  constructor(options: CallHandlerOptions) {
    this.#options = options
  }

  async answer(request: WorkerRequest & { readonly call: number }): Promise<void> {
    const { call } = request
    const source = new AbortSource()
    this.#running.set(call, source)
    const work = currentCall.run(call, () => this.#carryOut(request, source.signal))
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

  async #carryOut(request: WorkerRequest, signal: AbortSignal): Promise<WorkerResult> {
    const { executor, journal } = this.#options
    if (request.kind === 'preflight') return await executor.preflight(signal)
    if (request.kind === 'score-group') return await executor.scoreGroup(request.job, signal)
    const result = await executor.run(request.job, signal)
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
