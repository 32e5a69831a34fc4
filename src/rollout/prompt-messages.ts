import { z } from 'zod'
import { MillraceError } from '../errors/index.ts'
import { describeIssues, messageSchema, type Message } from '../schema/index.ts'

const conversationSchema = z.array(messageSchema).min(1)

/** What an environment's `prompt` returned, as messages. */
export function promptMessages(prompt: string | readonly Message[]): readonly Message[] {
  if (typeof prompt === 'string') return [{ role: 'user', content: prompt }]
  const checked = conversationSchema.safeParse(prompt)
  // The author's own objects: what is shared between rollouts stays shared.
  if (checked.success) return prompt
  throw new MillraceError(
    'setup_failed',
    `prompt must return a string or a list of chat messages: ${describeIssues(checked.error.issues)}`,
  )
}
