import { MillraceError } from '../errors/index.ts'
import { type AssistantMessage, type FinishReason, type Message, textOf } from '../schema/index.ts'

/** A reply that hit its length limit ends the rollout as `max_tokens`: what follows a cut thought is not the policy's own. */
export function requireWhole(finishReason: FinishReason): void {
  if (finishReason !== 'length') return
  throw new MillraceError('budget_exhausted', 'the reply reached its length limit', { data: { limit: 'tokens' } })
}

/** A conversation with a text added to its last user message: many chat templates do not allow two in a row. */
export function withRequest(messages: readonly Message[], text: string): readonly Message[] {
  const last = messages.at(-1)
  if (last?.role !== 'user') return [...messages, { role: 'user', content: text }]
  const content =
    typeof last.content === 'string'
      ? `${last.content}\n\n${text}`
      : [...last.content, { type: 'text' as const, text: `\n\n${text}` }]
  return [...messages.slice(0, -1), { ...last, content }]
}

/** Thoughts that a server leaves in the text of a reply are not part of what it says. */
export function withoutThoughts(text: string): string {
  const said = text.split('</think>').at(-1) ?? ''
  return said.includes('<think>') ? '' : said.trim()
}

/** How much of a tool's result somebody is shown who reads a conversation from outside. */
const maxResultChars = 2_000

/** A conversation as one text, for a model that has no part in it. */
export function transcript(messages: readonly Message[]): string {
  return messages.flatMap((message) => partsOf(message).map(([tag, text]) => tagged(tag, text))).join('\n')
}

export function tagged(tag: string, text: string): string {
  return `<${tag}>\n${text}\n</${tag.split(' ', 1)[0]}>`
}

function partsOf(message: Message): (readonly [tag: string, text: string])[] {
  const text = textOf(message)
  if (message.role === 'tool') {
    return [['result', text.length > maxResultChars ? `${text.slice(0, maxResultChars)}…` : text]]
  }
  if (message.role !== 'assistant') return [[message.role, text]]
  const said = saidIn(message)
  return said === '' ? [] : [['assistant', said]]
}

/** What a reply says, without thoughts and with its calls. */
export function saidIn(message: AssistantMessage): string {
  const said = withoutThoughts(textOf(message))
  const calls = (message.tool_calls ?? []).map(({ function: { name, arguments: args } }) =>
    tagged('call', `${name} ${args}`),
  )
  return [...(said === '' ? [] : [said]), ...calls].join('\n')
}

/** The last reply of a conversation; an empty one if there is none. */
export function lastReply(messages: readonly Message[]): AssistantMessage {
  return messages.findLast((message) => message.role === 'assistant') ?? { role: 'assistant', content: null }
}
