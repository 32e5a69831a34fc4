import { maxTimerMs } from '../kit/index.ts'
import type { Delivery } from './_simulator-answer.ts'
import type { ReplyFault } from './_fault-names.ts'
import { PacedJob, type JobHost, type Origin } from './_paced-job.ts'
import type { Sample } from './_sample.ts'

export interface WholeListener {
  /** The reply is complete, or the engine ended it. The job is over. */
  onEnd(sample: Sample): void
  /** The reply breaks here, before it is complete. After any fault but `stall` the job is over. */
  onFault(fault: BreakingFault): void
}

/** The faults that break a reply. `hang` sends nothing at all, and `malformed` garbles a complete reply. */
export type BreakingFault = Exclude<ReplyFault, 'hang' | 'malformed'>

/** A reply that leaves in one piece, when its last token is there. */
export class WholeJob extends PacedJob {
  readonly #listener: WholeListener
  #isStalled = false

  constructor(host: JobHost, origin: Origin, delivery: Delivery, listener: WholeListener) {
    super(host, origin, delivery)
    this.#listener = listener
  }

  protected override advance(): void {
    const { fault, reply, totalMs, luck } = this.delivery
    if (fault === 'hang' || this.#isStalled) {
      // A timer is set all the same: a process in which somebody waits must not end.
      this.isDue(this.elapsedMs + maxTimerMs)
    } else if (fault === undefined || fault === 'malformed') {
      if (!this.isDue(totalMs)) return
      this.emit(this.tokens.length)
      this.end(fault ? null : reply.finishReason)
      this.#listener.onEnd(this.complete())
    } else if (this.isDue(totalMs * luck)) {
      this.#break(fault)
    }
  }

  protected override onAbort(): void {
    const { firstTokenMs } = this.delivery
    const sampled = this.tokenMs === 0 ? 0 : Math.floor((this.elapsedMs - firstTokenMs) / this.tokenMs)
    this.emit(Math.max(0, Math.min(sampled, this.tokens.length - 1)))
    this.end('abort')
    this.#listener.onEnd(this.partial())
  }

  #break(fault: BreakingFault): void {
    if (fault !== 'stall') this.end(null)
    this.#isStalled = true
    this.#listener.onFault(fault)
    if (this.isRunning) this.advance()
  }
}
