import type { MillraceError } from '../../errors/index.ts'
import type { MessageNode } from '../../schema/index.ts'

type Sample = Pick<MessageNode, 'call' | 'discarded'> & { readonly lacksTokens?: boolean | undefined }

/** What a session has used up and what came of it, counted from its samples: so a restart finds the same numbers. */
export class SessionTally {
  /** Complete and lost ones. What failed before anything was sampled does not count. */
  requests = 0
  /** That were sampled. */
  tokens = 0
  /** US dollars, where prices are known. */
  cost = 0
  /** Whether a sample is not in `cost`, because its model has no price. */
  isCostPartial = false
  interactions = 0
  discarded = 0
  /** Complete replies without the tokens that training takes, whether or not anybody asked for these. */
  withoutTokens = 0
  /** Those of them whose tokens were asked for. */
  tokensMissing = 0
  /** What of the record cannot be read, if anything: the numbers are of what can be. */
  damage: MillraceError | undefined

  add({ call, discarded, lacksTokens }: Sample): void {
    const record = call ?? discarded
    if (!record) return
    this.requests += 1
    this.tokens += record.usage.output
    if (record.cost === null) this.isCostPartial = true
    else this.cost += record.cost
    if (call) this.#countReply({ call, lacksTokens }, 1)
    else this.discarded += 1
  }

  /** One that was counted as complete, and that nobody got. */
  lose(reply: Sample): void {
    this.#countReply(reply, -1)
    this.discarded += 1
  }

  /** Somebody got it after all. */
  regain(reply: Sample): void {
    this.#countReply(reply, 1)
    this.discarded -= 1
  }

  #countReply({ call, lacksTokens }: Sample, sign: 1 | -1): void {
    this.interactions += sign
    if (lacksTokens) this.withoutTokens += sign
    if (call?.tokensMissing) this.tokensMissing += sign
  }
}
