import type { MessageNode } from '../schema/index.ts'

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
  /** Whether a complete reply came without the tokens that were asked for. */
  tokensMissing = false

  add({ call, discarded }: Pick<MessageNode, 'call' | 'discarded'>): void {
    const record = call ?? discarded
    if (!record) return
    this.requests += 1
    this.tokens += record.usage.output
    if (record.cost === null) this.isCostPartial = true
    else this.cost += record.cost
    if (call) this.interactions += 1
    else this.discarded += 1
    if (call?.tokensMissing) this.tokensMissing = true
  }
}
