import { MillraceError } from '../errors/index.ts'
import type { Message } from '../schema/index.ts'

/**
 * An agent without types may append anything for a message. What cannot be read as one must not get into a conversation, which
 * everybody reads.
 */
export function requireReadable(message: Message): void {
  // Nearly all, told at once.
  if (typeof message.content === 'string') return
  const content: unknown = message.content ?? []
  if (Array.isArray(content) && content.every(isPart)) return
  const found = Array.isArray(content) ? 'a list of something else' : `a value of type ${typeof content}`
  throw new MillraceError(
    'agent_failed',
    `the content of a message must be text, or a list of parts with a type, not ${found}`,
  )
}

function isPart(part: unknown): boolean {
  return typeof part === 'object' && part !== null && 'type' in part
}
