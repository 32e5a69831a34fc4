import { isNestedWithin } from '../../kit/index.ts'
import type { JsonObject, Message, OriginalReply } from '../../schema/index.ts'
import { textOrNothing } from './foreign-json.ts'

/** SQLite reads no JSON that is nested a thousand levels deep. */
const maxDepth = 256

// The entry goes with its message.
const replies = new WeakMap<Message, OriginalReply>()

/**
 * Whether a reply holds reasoning that is signed or encrypted. Its server takes that back only as it was, in its place, and
 * Anthropic's refuses to go on from a call of a tool without it.
 */
export function isSealed({ api, output }: OriginalReply): boolean {
  if (api === 'chat' || !isNestedWithin(maxDepth, output)) return false
  const thoughts = output.filter(({ type }) => isThought(type))
  return thoughts.length > 0 && thoughts.every(hasSeal)
}

/** The message was read from this reply. */
export function keepSealed(message: Message, original: OriginalReply): void {
  replies.set(message, original)
}

/** The reply that a message was read from, if it is a sealed one. */
export function sealedReply(message: Message): OriginalReply | undefined {
  return replies.get(message)
}

function isThought(type: JsonObject[string]): boolean {
  return type === 'thinking' || type === 'redacted_thinking' || type === 'reasoning'
}

/** One item that its server keeps to itself would be looked for there, in vain. */
function hasSeal({ type, signature, encrypted_content: encrypted }: JsonObject): boolean {
  return type === 'redacted_thinking' || textOrNothing(signature ?? encrypted) !== undefined
}
