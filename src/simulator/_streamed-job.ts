import { maxTimerMs } from '../kit/index.ts'
import type { Delivery } from './_simulator-answer.ts'
import { PacedJob, type JobHost, type Origin } from './_paced-job.ts'
import type { Sample } from './_sample.ts'
import { groupTokens, type TokenGroup } from './_token-groups.ts'
import type { BreakingFault } from './_whole-job.ts'

/** Takes a reply piece by piece. A method that returns false can take no more until the listener calls `resume`. */
export interface StreamListener {
  /** Called when the first token is there. */
  onStart(version: string | undefined): boolean
  onGroup(group: TokenGroup, version: string | undefined): boolean
  /** Called instead of `onGroup` for a garbled piece. */
  onGarbledGroup(group: TokenGroup, version: string | undefined): boolean
  /** Called when nothing more is due for now. */
  onPause(): void
  /** The reply is complete, or the engine ended it. The job is over. */
  onEnd(sample: Sample): void
  /** The reply breaks here. After any fault but `stall` the job is over. */
  onFault(fault: BreakingFault): void
}

/** A reply that leaves in pieces, each when its last token is there. */
export class StreamedJob extends PacedJob {
  readonly #listener: StreamListener
  /** The groups, except for a last one that is only the end marker: that leaves with the end. */
  readonly #groups: readonly TokenGroup[]
  /** How many groups leave before a fault strikes; a garbled group is the last of them. */
  readonly #breakAfter: number
  #next = -1
  #isStalled = false
  #isBlocked = false
  #wasResumed = false

  constructor(host: JobHost, origin: Origin, delivery: Delivery, listener: StreamListener) {
    super(host, origin, delivery)
    this.#listener = listener
    this.#groups = groupTokens(this.tokens, delivery.groupSize).filter((group) => group.part !== 'marker')
    this.#breakAfter = Math.min(this.#groups.length, Math.max(1, Math.floor(this.#groups.length * delivery.luck)))
  }

  /** The listener can take more. */
  resume(): void {
    this.#wasResumed = true
    if (!this.#isBlocked) return
    this.#isBlocked = false
    if (this.isRunning) this.advance()
  }

  /** The tokens that have left so far, as a sample. */
  soFar(): Sample {
    return this.partial()
  }

  protected override advance(): void {
    const { fault, firstTokenMs, reply } = this.delivery
    if (fault === 'hang' || this.#isStalled) {
      // A timer is set all the same: a process in which somebody waits must not end.
      this.isDue(this.elapsedMs + maxTimerMs)
      return
    }
    while (!this.#isBlocked && this.#next < this.#groups.length) {
      const group = this.#groups[this.#next]
      if (!this.isDue(group ? this.#dueMs(group.to) : firstTokenMs)) {
        this.#listener.onPause()
        return
      }
      if (group && this.#next === this.#breakAfter && isBreaking(fault)) break
      this.#hand(group)
      if (!this.isRunning) return
    }
    if (this.#isBlocked) return
    if (isBreaking(fault)) {
      this.#break(resolved(fault, this.delivery.luck))
    } else if (this.isDue(this.#dueMs(this.tokens.length))) {
      this.emit(this.tokens.length)
      this.end(fault ? null : reply.finishReason)
      this.#listener.onEnd(this.complete())
    } else {
      this.#listener.onPause()
    }
  }

  protected override onAbort(): void {
    this.end('abort')
    this.#listener.onEnd(this.partial())
  }

  #dueMs(tokens: number): number {
    return this.delivery.firstTokenMs + (tokens - 1) * this.tokenMs
  }

  /** Hands over the next group, or the start before the first one. */
  #hand(group: TokenGroup | undefined): void {
    const { version } = this
    this.#next += 1
    this.#wasResumed = false
    let takesMore: boolean
    if (group) {
      const isGarbled = this.delivery.fault === 'malformed' && this.#next === this.#breakAfter
      // A garbled group is emitted after the listener took it: a listener that gives up on it has got nothing of it.
      if (!isGarbled) this.emit(group.to)
      takesMore = isGarbled ? this.#listener.onGarbledGroup(group, version) : this.#listener.onGroup(group, version)
      if (isGarbled) this.emit(group.to)
    } else {
      takesMore = this.#listener.onStart(version)
    }
    this.#isBlocked = !takesMore && !this.#wasResumed
  }

  #break(fault: BreakingFault): void {
    if (fault !== 'stall') this.end(null)
    this.#isStalled = true
    this.#listener.onFault(fault)
    if (this.isRunning) this.advance()
  }
}

type Fault = Delivery['fault']

function isBreaking(fault: Fault): fault is BreakingFault {
  return fault !== undefined && fault !== 'hang' && fault !== 'malformed'
}

/** Two of three cut streams lose their connection; the third ends in order, but does not say that it is complete. */
function resolved(fault: BreakingFault, luck: number): BreakingFault {
  if (fault !== 'cut') return fault
  return (luck * 1000) % 3 < 2 ? 'kill' : 'quietEnd'
}
