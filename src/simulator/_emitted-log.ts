import { RingQueue } from '../kit/index.ts'
import type { ClientApi, FinishReason, TokenRecord, VersionSpan } from '../schema/index.ts'

/** One reply as it left: a recording of it must hold the same. */
export interface EmittedReply {
  /** The session that the reply belongs to, as the client named it (`x-session-id`). */
  readonly session: string
  readonly replyId: string
  readonly api: ClientApi
  /** Null if the reply did not end: a fault struck, or the client went away. */
  readonly finish: FinishReason | 'abort' | null
  readonly promptIds: readonly number[]
  /** The ids that left; empty if a reply that leaves whole did not. */
  readonly ids: readonly number[]
  readonly logprobs: readonly number[]
  /** From which token on which version; empty if the weights have no version. */
  readonly versions: readonly VersionSpan[]
  /** Which experts each token went through. Servers send them with the end, so only a reply that ended has them. */
  readonly routedExperts?: readonly number[]
}

/** An emitted reply as it is kept: in arrays that exist anyway, with how many of their elements count. */
export interface EmittedRecord extends Pick<EmittedReply, 'session' | 'replyId' | 'api' | 'finish' | 'versions'> {
  readonly tokens: TokenRecord
  readonly count: number
}

/** The last replies that left. Beyond `limit` the oldest are dropped and counted. */
export class EmittedLog {
  readonly #records = new RingQueue<EmittedRecord>()
  #dropped = 0

  get dropped(): number {
    return this.#dropped
  }

  add(record: EmittedRecord, limit: number): void {
    this.#records.push(record)
    while (this.#records.size > limit) {
      this.#records.shift()
      this.#dropped += 1
    }
  }

  /** The replies of one session, or of all; the oldest first. */
  list(session?: string): EmittedReply[] {
    const replies: EmittedReply[] = []
    // Walks around the ring once: each record taken from the front goes back to the end.
    for (let left = this.#records.size; left > 0; left -= 1) {
      const record = this.#records.shift()
      if (!record) break
      this.#records.push(record)
      if (session === undefined || record.session === session) replies.push(replyOf(record))
    }
    return replies
  }
}

function replyOf({ tokens, count, ...rest }: EmittedRecord): EmittedReply {
  const { experts } = (rest.finish !== null && tokens.routedExperts) || {}
  return {
    ...rest,
    ...(experts && { routedExperts: Array.from(experts.subarray(0, (experts.length / tokens.ids.length) * count)) }),
    promptIds: Array.from(tokens.promptIds ?? []),
    ids: Array.from(tokens.ids.subarray(0, count)),
    logprobs: Array.from(tokens.logprobs.subarray(0, count)),
  }
}
