import type { MillraceError } from '../../errors/index.ts'
import type { MessageNode } from '../../schema/index.ts'

type Sample = Pick<MessageNode, 'call' | 'discarded'> & { readonly lacksTokens?: boolean | undefined }

/** What a session has used up, and its results, counted from its samples, so that a restart finds the same numbers. */
export class SessionTally {
  /** Requests with a reply, complete or lost. Those that failed before anything was sampled do not count. */
  requests = 0
  /** Tokens that were sampled. */
  tokens = 0
  /** US dollars, for models whose price is known. */
  cost = 0
  /** Whether a sample is not in `cost`, because its model has no price. */
  isCostPartial = false
  interactions = 0
  discarded = 0
  /** Complete replies without the tokens that training takes, whether or not these were asked for. */
  withoutTokens = 0
  /** Complete replies whose tokens were asked for, and are missing. */
  tokensMissing = 0
  /** Why part of the record cannot be read, if so: the numbers then cover the rest. */
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

  /** Counts a reply as lost that was counted as complete, and that no client got. */
  lose(reply: Sample): void {
    this.#countReply(reply, -1)
    this.discarded += 1
  }

  /** Counts a lost reply as complete again: a client got it after all. */
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
