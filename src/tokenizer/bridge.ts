import type { AssistantMessage, Json, Message, ToolDefinition } from '../schema/index.ts'
import type { ChatTemplate } from './chat-template.ts'

/** What a rendering depends on beside the messages. */
export interface RenderSettings {
  readonly tools: readonly ToolDefinition[]
  readonly variables?: Readonly<Record<string, Json>> | undefined
}

export type Bridge =
  /** The text that follows the sampled reply: the end of its turn, the new messages, and the beginning of the next reply. */
  { readonly text: string; readonly problem?: undefined } | { readonly text?: undefined; readonly problem: string }

/** Stands for the reply in a rendering. Plain letters, so that no template escapes or trims it. */
const standIn = 'MillraceStandInForTheReply'

/**
 * Renders what one turn adds to a conversation, with any chat template. A short conversation is rendered with and without the new
 * messages, and with a stand-in for the reply. If the first rendering begins with the second, the rest is what the turn adds.
 * The sampled reply itself is never rendered, so its tokens stay as they are.
 */
export class TemplateBridge {
  readonly #template: ChatTemplate
  /** What the template writes after the text of a reply. */
  readonly close: string

  /** Throws if the template cannot render a plain conversation. */
  constructor(template: ChatTemplate) {
    this.#template = template
    const reply = { role: 'assistant', content: standIn } as const
    const rendered = this.#render([opening, reply], { tools: [] }, false)
    const at = rendered.lastIndexOf(standIn)
    this.close = at === -1 ? '' : rendered.slice(at + standIn.length)
  }

  /** The whole conversation, up to where the next reply begins. */
  whole(messages: readonly Message[], settings: RenderSettings): string {
    return this.#render(messages, settings, true)
  }

  /** The text with which every conversation begins that begins with these messages. */
  beginning(messages: readonly Message[], settings: RenderSettings): string {
    return this.#render(messages, settings, false)
  }

  /** What follows the reply. `before`: the messages before it, if a short conversation is not to be used in their place. */
  after(
    reply: AssistantMessage,
    added: readonly Message[],
    { before = [opening], ...settings }: RenderSettings & { readonly before?: readonly Message[] },
  ): Bridge {
    if (added.some(({ role }) => role === 'assistant')) {
      return { problem: 'the messages after the reply have a reply that the model did not write' }
    }
    const head = this.#render(before, settings, false)
    const written = [...before, withStandIn(reply, 'content')]
    let turn = this.#render(written, settings, false)
    if (!turn.includes(standIn)) {
      // Some templates leave out the text of a reply that calls tools.
      written[before.length] = withStandIn(reply, 'arguments')
      turn = this.#render(written, settings, false)
    }
    const longer = this.#render([...written, ...added], settings, true)
    if (!turn.startsWith(head) || !longer.startsWith(head)) {
      return { problem: 'the chat template changes the beginning of a conversation when messages are added' }
    }
    const [end, longerEnd] = [textAfterStandIn(turn), textAfterStandIn(longer)]
    if (end === undefined || longerEnd === undefined) return { problem: 'the chat template leaves out the reply' }
    if (!end.endsWith(this.close)) return { problem: 'the chat template ends replies in more than one way' }
    if (!longerEnd.startsWith(end)) return { problem: 'the chat template rewrites a reply when messages are added' }
    return { text: this.close + longerEnd.slice(end.length) }
  }

  #render(messages: readonly Message[], settings: RenderSettings, addGenerationPrompt: boolean): string {
    return this.#template.render({ messages, ...settings, addGenerationPrompt })
  }
}

const opening: Message = { role: 'user', content: 'Hello.' }

function withStandIn({ tool_calls: calls = [] }: AssistantMessage, place: 'content' | 'arguments'): AssistantMessage {
  if (calls.length === 0) return { role: 'assistant', content: standIn }
  const last = calls.length - 1
  return {
    role: 'assistant',
    content: place === 'content' ? standIn : '',
    tool_calls: calls.map((call, index) => {
      const written = place === 'arguments' && index === last ? JSON.stringify({ value: standIn }) : '{}'
      return { ...call, function: { name: call.function.name, arguments: written } }
    }),
  }
}

/** Undefined if there is none. The reply comes before the messages that were added, so its first stand-in counts. */
function textAfterStandIn(text: string): string | undefined {
  const at = text.indexOf(standIn)
  return at === -1 ? undefined : text.slice(at + standIn.length)
}
