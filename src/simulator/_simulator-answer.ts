import type { MillraceError } from '../errors/index.ts'
import type { BackendReply } from '../inference/index.ts'
import { wholeTokens } from './_compose.ts'
import type { ReplyFault } from './_fault-names.ts'
import type { Token } from './_token-stream.ts'

/** The simulator's answer to a request, before the time that it takes to deliver it. */
export type SimulatorAnswer = Refusal | Delivery

/** The request is refused at once; `error.data.status` is the HTTP status. */
interface Refusal {
  readonly kind: 'refusal'
  readonly error: MillraceError
}

export interface Delivery {
  readonly kind: 'delivery'
  /** The reply. Its tokens carry the weights' version of now; a reply that takes time is stamped anew as it leaves. */
  readonly reply: BackendReply
  /** The reply's tokens, if they had to be made anyway; see `tokensOf`. */
  readonly tokens: readonly Token[] | undefined
  readonly firstTokenMs: number
  readonly totalMs: number
  /** How many tokens one event of a stream holds at most. */
  readonly groupSize: number
  readonly fault: ReplyFault | undefined
  /** In (0, 1): where the reply breaks if a fault cuts it, and how. */
  readonly luck: number
  /** The name of this delivery: the same question asked again gets the same reply under another name. */
  readonly id: string
}

/** Every token of a reply, the template's markers included, in the order in which they were sampled. */
export function tokensOf(delivery: Delivery): readonly Token[] {
  return delivery.tokens ?? wholeTokens(delivery.reply.message)
}
