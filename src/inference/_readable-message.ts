import { MillraceError } from '../errors/index.ts'
import type { Message } from '../schema/index.ts'

/**
 * Throws if a value cannot be read as a message. Agents written without types may append anything, and everything downstream
 * reads the conversation.
 */
export function requireReadable(message: Message): void {
  // The fast path: the content of nearly all messages is text.
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
