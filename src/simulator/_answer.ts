import type { MillraceError } from '../errors/index.ts'
import type { BackendReply } from '../inference/index.ts'
import { wholeTokens } from './_compose.ts'
import type { ExclusiveFault } from './_faults.ts'
import type { Token } from './_token-stream.ts'

/** What the simulator has to say to a request, before it takes its time to say it. */
export type Answer = Refusal | Delivery

/** Refused at once; `error.data.status` is the HTTP status. */
interface Refusal {
  readonly kind: 'refusal'
  readonly error: MillraceError
}

export interface Delivery {
  readonly kind: 'delivery'
  readonly reply: BackendReply
  /** See `tokensOf`. */
  readonly cutTokens: readonly Token[] | undefined
  readonly firstTokenMs: number
  readonly totalMs: number
  readonly fault: Exclude<ExclusiveFault, 'rateLimit' | 'serverError'> | undefined
  /** In (0, 1): where the reply breaks if it is cut, and how. */
  readonly luck: number
  /** Which weights made it, if the options say. */
  readonly version: string | undefined
  /** Names the reply: the same for the same request and try. */
  readonly id: string
}

/** Every token of a reply, the template's markers included, in the order in which they were sampled. */
export function tokensOf(delivery: Delivery): readonly Token[] {
  return delivery.cutTokens ?? wholeTokens(delivery.reply.message)
}

/** The weights' version where SGLang puts it. */
export function versionOf({ version }: Delivery): { metadata?: { weight_version: string } } {
  return version === undefined ? {} : { metadata: { weight_version: version } }
}
