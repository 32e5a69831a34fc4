import { hash } from 'node:crypto'
import type { AssistantMessage } from '../../schema/index.ts'

/** Short digests of a reply: `spelled` of what it says, as it is spelled; `whole` of that with its reasoning, if it has any. */
export interface ReplyDigests {
  readonly spelled: string
  readonly whole: string
}

/** `digest` is that of what the message says. */
export function digestsOf({ reasoning_content: reasoning }: AssistantMessage, digest: string): ReplyDigests {
  const spelled = shortened(digest)
  return { spelled, whole: reasoning ? shortened(hash('sha256', digest + reasoning, 'base64url')) : spelled }
}

/** How far a client's repetition is from what was said: 0 word for word, 1 without its reasoning, 2 in another spelling. */
export function strangenessOf(said: ReplyDigests | undefined, repeated: ReplyDigests | undefined): number {
  if (said?.whole === repeated?.whole) return 0
  return said?.spelled === repeated?.spelled ? 1 : 2
}

/** 72 bits: enough to tell a few messages apart, and short, because every reply of a session keeps them. */
function shortened(digest: string): string {
  return digest.slice(0, 12)
}
