import { hash } from 'node:crypto'
import type { AssistantMessage } from '../schema/index.ts'
import { meaningOf } from './_meaning.ts'

/** Short digests of a reply: of what it says as it is spelled, and of that with its reasoning. The same if it has none. */
export interface MessagePrint {
  readonly spelled: string
  readonly whole: string
}

export function printOf(message: AssistantMessage): MessagePrint {
  const meaning = meaningOf(message)
  const spelled = digest(meaning)
  const { reasoning_content: reasoning } = message
  return { spelled, whole: reasoning ? digest(`${meaning}${reasoning}`) : spelled }
}

/** How far what a client repeats is from what was said: 0 word for word, 1 without its reasoning, 2 in another spelling. */
export function strangenessOf(said: MessagePrint | undefined, repeated: MessagePrint | undefined): number {
  if (said?.whole === repeated?.whole) return 0
  return said?.spelled === repeated?.spelled ? 1 : 2
}

/** 72 bits: enough to tell a few messages apart, and short, because every reply of a session has them. */
function digest(text: string): string {
  return hash('sha256', text, 'base64url').slice(0, 12)
}
