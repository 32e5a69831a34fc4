import type { Message, Usage } from '../schema/index.ts'
import type { PartialReply } from './backend.ts'
import { estimatedTokens, tokensOfText } from './estimated-tokens.ts'
import type { Price } from './model-config.ts'
import type { CompleteReply } from './model-reply.ts'
import { costOf } from './prices.ts'

/** Fills in the usage of a reply if the server reported none, because limits hold all the same. */
export function withUsage(reply: CompleteReply, prompt: readonly Message[], price: Price | undefined): CompleteReply {
  if (reply.usage.input + reply.usage.output > 0) return reply
  const usage = untoldUsage(reply, prompt)
  return { ...reply, usage, cost: costOf(usage, price) }
}

/** Whether a reply came with the ids and log-probabilities of all its tokens. */
export function hasAllTokens({ tokens, usage }: Pick<CompleteReply, 'tokens' | 'usage'>): boolean {
  if (!tokens || tokens.ids.length === 0) return false
  return tokens.ids.length >= usage.output && tokens.logprobs.length === tokens.ids.length
}

/** The usage of a reply whose server reported none: tokens are counted if their ids came, and estimated if not. */
export function untoldUsage({ message, tokens }: PartialReply, prompt: readonly Message[]): Usage {
  const known = { input: tokens?.promptIds?.length, output: tokens?.ids.length || undefined }
  const input = known.input ?? estimatedTokens(prompt)
  const output = known.output ?? tokensOfText(charsOf(message))
  const usage = { calls: 1, input, cachedInput: 0, output, reasoning: 0 }
  return known.input === undefined || known.output === undefined ? { ...usage, estimated: 1 } : usage
}

function charsOf({
  content,
  reasoning_content: reasoning,
  refusal,
  tool_calls: calls = [],
  others = [],
}: PartialReply['message']): number {
  let said = (content?.length ?? 0) + (reasoning?.length ?? 0) + (refusal?.length ?? 0)
  for (const { value } of others) said += JSON.stringify(value).length
  return calls.reduce((sum, { function: called }) => sum + called.name.length + called.arguments.length, said)
}
