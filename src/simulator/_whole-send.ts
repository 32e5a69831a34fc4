import type { BackendReply } from '../inference/index.ts'
import type { Delivery } from './_simulator-answer.ts'
import { abortedError, faultError } from './_faults.ts'
import type { JobHost, Origin } from './_paced-job.ts'
import { PendingSend } from './_pending-send.ts'
import type { Sample } from './_sample.ts'
import { WholeJob, type BreakingFault, type WholeListener } from './_whole-job.ts'

/** A whole reply, in process: what a client would make of a server's answer. */
export class WholeSend extends PendingSend implements WholeListener {
  protected readonly job: WholeJob
  readonly #delivery: Delivery
  readonly #finish: (sample: Sample) => BackendReply

  /** `finish` turns the sample into the caller's reply. */
  constructor(
    host: JobHost,
    origin: Origin,
    { delivery, signal }: { readonly delivery: Delivery; readonly signal: AbortSignal },
    finish: (sample: Sample) => BackendReply,
  ) {
    super(signal)
    this.#delivery = delivery
    this.#finish = finish
    this.job = new WholeJob(host, origin, delivery, this)
  }

  onEnd(sample: Sample): void {
    if (sample.isAborted) this.fail(abortedError())
    else if (this.#delivery.fault === 'malformed') this.fail(faultError('malformed'))
    else this.succeed(this.#finish(sample))
  }

  onFault(fault: BreakingFault): void {
    if (fault !== 'stall') this.fail(faultError(fault))
  }
}
