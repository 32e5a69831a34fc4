import type { WireEvent } from '../dialects/index.ts'
import type { BackendReply, ReplyDelta, ReplySink } from '../inference/index.ts'
import type { Delivery } from './_simulator-answer.ts'
import type { StreamStep, StreamWriter } from './_simulated-api.ts'
import { abortedError, faultError } from './_faults.ts'
import type { JobHost, Origin } from './_paced-job.ts'
import { PendingSend } from './_pending-send.ts'
import type { Sample } from './_sample.ts'
import { StreamedJob, type StreamListener } from './_streamed-job.ts'
import type { TokenGroup } from './_token-groups.ts'
import type { BreakingFault } from './_whole-job.ts'

interface StreamedSendOptions {
  readonly delivery: Delivery
  readonly writer: StreamWriter
  readonly sink: ReplySink
  readonly signal: AbortSignal
}

/** A streamed reply, in process: the sink gets the events that a server's stream would bring, at their pace. */
export class StreamedSend extends PendingSend implements StreamListener {
  protected readonly job: StreamedJob
  readonly #writer: StreamWriter
  readonly #sink: ReplySink
  readonly #finish: (sample: Sample) => BackendReply
  #hasBegun = false

  /** `finish` turns the sample into the caller's reply. */
  constructor(host: JobHost, origin: Origin, options: StreamedSendOptions, finish: (sample: Sample) => BackendReply) {
    super(options.signal)
    this.#writer = options.writer
    this.#sink = options.sink
    this.#finish = finish
    this.job = new StreamedJob(host, origin, options.delivery, this)
  }

  onStart(version: string | undefined): boolean {
    return this.#hand(this.#writer.start(version), false)
  }

  onGroup(group: TokenGroup, version: string | undefined): boolean {
    return this.#hand(this.#writer.group(group, version), false)
  }

  onGarbledGroup(): boolean {
    this.fail(faultError('malformed'))
    return false
  }

  onPause(): void {}

  onEnd(sample: Sample): void {
    this.#hand(this.#writer.end(sample), true)
    if (sample.isAborted) this.fail(abortedError())
    else this.succeed(this.#finish(sample))
  }

  onFault(fault: BreakingFault): void {
    if (fault !== 'stall') this.fail(faultError(fault))
  }

  /** Reports what came before the failure, if anything did: without that it is a refusal, not a broken reply. */
  protected override onFail(): void {
    if (!this.#hasBegun) return
    const { message, tokens } = this.#finish(this.job.soFar())
    // A record without tokens is left out.
    this.#sink.onPartial?.({ message, ...(tokens && tokens.ids.length > 0 && { tokens }) })
  }

  /** Returns whether the sink takes more. All events of one piece are handed over, as if they had arrived together. */
  #hand({ events, deltas }: StreamStep, isEnd: boolean): boolean {
    if (events.length === 0) return true
    this.#hasBegun = true
    const told = events.map(({ data }, index) => eventOf(data, index === 0 ? deltas : noDeltas, isEnd))
    return this.#sink.onEvents(told, this.#resume)
  }

  readonly #resume = (): void => this.job.resume()
}

const noDeltas: readonly ReplyDelta[] = []

function eventOf(data: WireEvent['data'], deltas: readonly ReplyDelta[], isEnd: boolean) {
  if (data === '[DONE]') return { data, document: undefined, deltas, isEnd }
  return { data: JSON.stringify(data), document: data, deltas, isEnd }
}
