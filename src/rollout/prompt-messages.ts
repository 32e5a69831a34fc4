import { z } from 'zod'
import { MillraceError } from '../errors/index.ts'
import { describeIssues, messageSchema, type Message } from '../schema/index.ts'

const conversationSchema = z.array(messageSchema).min(1)

/** What an environment's `prompt` returned, as messages. */
export function promptMessages(prompt: string | readonly Message[]): readonly Message[] {
  if (typeof prompt === 'string') return [{ role: 'user', content: prompt }]
  if (Array.isArray(prompt) && prompt.length > 0 && isAllPlainText(prompt)) return prompt
  const checked = conversationSchema.safeParse(prompt)
  // The author's own objects, not the parsed copies: messages that rollouts share stay shared.
  if (checked.success) return prompt
  throw new MillraceError(
    'setup_failed',
    `it must return a string or a list of chat messages: ${describeIssues(checked.error.issues, prompt)}`,
  )
}

/**
 * Whether the messages are plain text, as nearly all prompts are, so that the schema is sure to accept them. Checked by hand,
 * because that takes a tenth of the time; the schema decides about all other messages.
 */
function isAllPlainText(messages: readonly unknown[]): boolean {
  // Unlike `every`, a loop also looks at holes in the list.
  for (const message of messages) if (!isPlainText(message)) return false
  return true
}

function isPlainText(message: unknown): boolean {
  if (typeof message !== 'object' || message === null || Array.isArray(message)) return false
  if (!('role' in message && 'content' in message)) return false
  if (typeof message.content !== 'string') return false
  return message.role === 'system' || (message.role === 'user' && !('name' in message))
}
