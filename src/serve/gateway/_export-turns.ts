import type { ServerResponse } from 'node:http'
import { MillraceError } from '../../errors/index.ts'
import { AbortScope, Semaphore } from '../../kit/index.ts'
import { clientGone } from '../_client-gone.ts'
import type { GatewayBounds } from './gateway-bounds.ts'

/** Lets few exports run at once: each holds a session in memory, and has its share of every turn of the loop. The others wait. */
export class ExportTurns {
  readonly #turns: Semaphore
  readonly #maxWaitMs: number

  constructor({ maxExports, maxStallMs }: Pick<GatewayBounds, 'maxExports' | 'maxStallMs'>) {
    this.#turns = new Semaphore(maxExports)
    // While one waits nothing moves on its connection, which then does not last.
    this.#maxWaitMs = maxStallMs / 2
  }

  /** Resolves when it is an export's turn, which is over with its reply, however that ends. */
  async begin(response: ServerResponse): Promise<void> {
    using waiting = new AbortScope(undefined, this.#maxWaitMs, () => this.#full())
    let onClose = (): void => waiting.abort(clientGone())
    response.once('close', () => onClose())
    await this.#turns.acquire(waiting.signal)
    onClose = () => this.#turns.release()
    // Its turn and its end may have come at the same moment.
    if (!waiting.signal.aborted) return
    onClose = () => {}
    this.#turns.release()
    throw waiting.signal.reason
  }

  #full(): MillraceError {
    const message = `${this.#turns.limit} exports are running, which is the most; try again in a moment`
    return new MillraceError('overloaded', message, { data: { status: 503, retryAfterMs: 1000 } })
  }
}
