import { hash } from 'node:crypto'
import type { AssistantMessage } from '../../schema/index.ts'

/** Short digests of a reply: of what it says as it is spelled, and of that with its reasoning. The same if it has none. */
export interface MessagePrint {
  readonly spelled: string
  readonly whole: string
}

/** `digest` is that of what it says. */
export function printOf({ reasoning_content: reasoning }: AssistantMessage, digest: string): MessagePrint {
  const spelled = shortened(digest)
  return { spelled, whole: reasoning ? shortened(hash('sha256', digest + reasoning, 'base64url')) : spelled }
}

/** How far what a client repeats is from what was said: 0 word for word, 1 without its reasoning, 2 in another spelling. */
export function strangenessOf(said: MessagePrint | undefined, repeated: MessagePrint | undefined): number {
  if (said?.whole === repeated?.whole) return 0
  return said?.spelled === repeated?.spelled ? 1 : 2
}

/** 72 bits: enough to tell a few messages apart, and short, because every reply of a session has them. */
function shortened(digest: string): string {
  return digest.slice(0, 12)
}
