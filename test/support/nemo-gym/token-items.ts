/** An item of a response as NeMo Gym's trainers read it. */
export interface TokenItem {
  readonly type: string
  readonly role?: string
  readonly prompt_token_ids?: readonly number[]
  readonly generation_token_ids?: readonly number[]
  readonly generation_log_probs?: readonly number[]
}

/** Whether the model wrote it. */
export function isSampled({ type, role }: TokenItem): boolean {
  return type === 'reasoning' || type === 'function_call' || (type === 'message' && role === 'assistant')
}

/** The items of each reply: what stands between what tools or users said. */
export function turnsOf(output: readonly TokenItem[]): TokenItem[][] {
  const turns: TokenItem[][] = []
  let isWithin = false
  for (const item of output) {
    const isOurs = isSampled(item)
    if (isOurs && isWithin) turns.at(-1)?.push(item)
    else if (isOurs) turns.push([item])
    isWithin = isOurs
  }
  return turns
}
