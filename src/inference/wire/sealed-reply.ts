import { isNestedWithin } from '../../kit/index.ts'
import {
  isJsonObject,
  maxOriginalDepth,
  type CallRecord,
  type JsonObject,
  type Message,
  type OriginalReply,
} from '../../schema/index.ts'
import { sealsIn } from './_chat-extras.ts'
import { textOrNothing } from './foreign-json.ts'

// The entry goes with its message.
const replies = new WeakMap<Message, { readonly model: string; readonly original: OriginalReply }>()

/**
 * Whether a reply holds reasoning that is signed or encrypted. Its server takes that back only as it was, in its place;
 * Anthropic's and Gemini's refuse to go on from a call of a tool without it.
 */
export function isSealed({ api, output }: OriginalReply): boolean {
  if (!isNestedWithin(maxOriginalDepth, output)) return false
  if (api === 'chat') return output.some((message) => sealsIn(message).some((seal) => isJsonObject(seal)))
  const thoughts = output.filter(({ type }) => isThought(type))
  return thoughts.length > 0 && thoughts.every(hasSeal)
}

/** The message was read from the reply of this call, which has it in its own words if it is a sealed one. */
export function keepSealed(message: Message, { model, original }: Pick<CallRecord, 'model' | 'original'>): void {
  if (!original) return
  replies.set(message, { model, original })
}

/** The reply that a message was read from, if it is a sealed one of this model: no other could open it. */
export function sealedReply(message: Message, model: string): OriginalReply | undefined {
  const found = replies.get(message)
  return found?.model === model ? found.original : undefined
}

function isThought(type: JsonObject[string]): boolean {
  return type === 'thinking' || type === 'redacted_thinking' || type === 'reasoning'
}

/** One item that its server keeps to itself would be looked for there, in vain. */
function hasSeal({ type, signature, encrypted_content: encrypted }: JsonObject): boolean {
  return type === 'redacted_thinking' || textOrNothing(signature ?? encrypted) !== undefined
}
