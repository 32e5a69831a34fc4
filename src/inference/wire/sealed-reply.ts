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

// An entry is dropped with its message.
const replies = new WeakMap<Message, { readonly model: string; readonly original: OriginalReply }>()

/**
 * Whether a reply holds reasoning that is signed or encrypted. Its server takes such reasoning back only unchanged and in
 * its place; Anthropic's and Gemini's servers refuse to continue after a tool call without it.
 */
export function isSealed({ api, output }: OriginalReply): boolean {
  if (!isNestedWithin(maxOriginalDepth, output)) return false
  if (api === 'chat') return output.some((message) => sealsIn(message).some((seal) => isJsonObject(seal)))
  const thoughts = output.filter(({ type }) => isThought(type))
  return thoughts.length > 0 && thoughts.every(hasSeal)
}

/** Keeps the original of the call's reply, if it is a sealed one, with the message that was read from it. */
export function keepSealed(message: Message, { model, original }: Pick<CallRecord, 'model' | 'original'>): void {
  if (!original) return
  replies.set(message, { model, original })
}

/** The original reply of a message, if it is a sealed one of this model: no other model could open it. */
export function sealedReply(message: Message, model: string): OriginalReply | undefined {
  const found = replies.get(message)
  return found?.model === model ? found.original : undefined
}

function isThought(type: JsonObject[string]): boolean {
  return type === 'thinking' || type === 'redacted_thinking' || type === 'reasoning'
}

/** Whether reasoning carries its own content. Without a seal the server would look for the item in its store, in vain. */
function hasSeal({ type, signature, encrypted_content: encrypted }: JsonObject): boolean {
  return type === 'redacted_thinking' || textOrNothing(signature ?? encrypted) !== undefined
}
