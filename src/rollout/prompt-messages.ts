import { z } from 'zod'
import { MillraceError } from '../errors/index.ts'
import { describeIssues, messageSchema, type Message } from '../schema/index.ts'

const conversationSchema = z.array(messageSchema).min(1)

/** What an environment's `prompt` returned, as messages. */
export function promptMessages(prompt: string | readonly Message[]): readonly Message[] {
  if (typeof prompt === 'string') return [{ role: 'user', content: prompt }]
  if (Array.isArray(prompt) && prompt.length > 0 && isAllPlainText(prompt)) return prompt
  const checked = conversationSchema.safeParse(prompt)
  // The author's own objects: what is shared between rollouts stays shared.
  if (checked.success) return prompt
  throw new MillraceError(
    'setup_failed',
    `it must return a string or a list of chat messages: ${describeIssues(checked.error.issues)}`,
  )
}

/**
 * What nearly all prompts are made of, and the schema takes as it is. Told by hand, because that takes a tenth of the time; what it
 * does not know, the schema decides.
 */
function isAllPlainText(messages: readonly unknown[]): boolean {
  // Unlike `every`, a loop stops at a hole.
  for (const message of messages) if (!isPlainText(message)) return false
  return true
}

function isPlainText(message: unknown): boolean {
  if (typeof message !== 'object' || message === null || Array.isArray(message)) return false
  if (!('role' in message && 'content' in message)) return false
  if (typeof message.content !== 'string') return false
  return message.role === 'system' || (message.role === 'user' && !('name' in message))
}
