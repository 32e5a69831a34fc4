import type { ContentPart, Message, SystemMessage, UserMessage } from '../../schema/index.ts'

type Content = string | readonly ContentPart[]

/**
 * A conversation with the roles that chat templates accept: one system message at most, which comes first, and no two user
 * messages in a row. System and developer messages at the beginning become one system message, and later ones user messages.
 * User messages that are next to each other become one.
 *
 * When an assistant's message and others are added to a conversation, the result for its beginning does not change.
 */
export function templateRoles(messages: readonly Message[]): readonly Message[] {
  if (isAccepted(messages)) return messages
  const mapped: Message[] = []
  for (const message of messages) {
    const isHead = mapped.length === 0 || (mapped.length === 1 && mapped[0]?.role === 'system')
    const given = isInstruction(message)
      ? ({ role: isHead ? 'system' : 'user', content: message.content } as const)
      : message
    const last = mapped.at(-1)
    if (isSystem(last) && isSystem(given)) mapped[0] = { role: 'system', content: joined(last, given) }
    else if (isPlainUser(last) && isPlainUser(given))
      mapped.splice(-1, 1, { role: 'user', content: joined(last, given) })
    else mapped.push(given)
  }
  return mapped
}

function isAccepted(messages: readonly Message[]): boolean {
  return messages.every((message, index) => {
    if (message.role === 'developer') return false
    if (message.role === 'system') return index === 0
    return !isPlainUser(message) || !isPlainUser(messages[index - 1])
  })
}

function isSystem(message: Message | undefined): message is SystemMessage {
  return message?.role === 'system'
}

function isInstruction(message: Message): message is SystemMessage {
  return message.role === 'system' || message.role === 'developer'
}

/** A named user is another speaker. */
function isPlainUser(message: Message | undefined): message is UserMessage {
  return message?.role === 'user' && message.name === undefined
}

/** Both contents, as one text with an empty line between its parts unless there is more than text. */
function joined(
  { content: one }: { readonly content: Content },
  { content: other }: { readonly content: Content },
): Content {
  const parts = [...partsOf(one), ...partsOf(other)]
  const texts = parts.flatMap((part) => (part.type === 'text' ? [part.text] : []))
  return texts.length === parts.length ? texts.join('\n\n') : parts
}

function partsOf(content: Content): readonly ContentPart[] {
  return typeof content === 'string' ? [{ type: 'text', text: content }] : content
}
