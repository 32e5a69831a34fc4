import type { ClientApi, FinishReason, TokenRecord, VersionSpan } from '../../schema/index.ts'

/** One reply as it left: a recording of it must hold the same. */
export interface EmittedReply {
  readonly session: string
  readonly replyId: string
  readonly api: ClientApi
  /** Null if the reply did not end: a fault struck, or the client went away. */
  readonly finish: FinishReason | 'abort' | null
  readonly promptIds: readonly number[]
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
  readonly #records: EmittedRecord[] = []
  dropped = 0

  add(record: EmittedRecord, limit: number): void {
    this.#records.push(record)
    this.dropped += this.#records.splice(0, this.#records.length - limit).length
  }

  list(session?: string): EmittedReply[] {
    return this.#records.filter((record) => session === undefined || record.session === session).map(replyOf)
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
