import { estimatedTokens, tokensOfText, type PartialReply } from '../../inference/index.ts'
import type { Message, Usage } from '../../schema/index.ts'

/** Whether nothing at all came of it. */
export function isEmpty({ message, tokens }: PartialReply): boolean {
  return charsOf(message) === 0 && !message.tool_calls?.length && !tokens?.ids.length
}

/** What a reply has used up that nobody tells it of: its tokens are counted where they came, and estimated where they did not. */
export function untoldUsage({ message, tokens }: PartialReply, prompt: readonly Message[]): Usage {
  const input = tokens?.promptIds?.length ?? estimatedTokens(prompt)
  const output = tokens?.ids.length || tokensOfText(charsOf(message))
  return { calls: 1, input, cachedInput: 0, output, reasoning: 0 }
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
