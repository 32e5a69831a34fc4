import type { Message } from '../schema/index.ts'
import type { Opening } from './job.ts'

/** The messages to begin with, some of them replaced by the job's own. */
export function openedWith(prompt: readonly Message[], opening: Opening | undefined): readonly Message[] {
  if (!opening) return prompt
  const messages = [...prompt]
  const { system, prompt: asked } = opening
  if (asked !== undefined) put(messages, { role: 'user', content: asked }, messages.length)
  if (system !== undefined) put(messages, { role: 'system', content: system }, 0)
  return messages
}

/** Puts the message in the place of the first of its role, or at `otherwise` if there is none. */
function put(messages: Message[], message: Message, otherwise: number): void {
  const index = messages.findIndex(({ role }) => role === message.role)
  if (index === -1) messages.splice(otherwise, 0, message)
  else messages[index] = message
}
