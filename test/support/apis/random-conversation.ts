import { seededRandom } from '../../../src/kit/index.ts'
import type { BackendReply, ReplyDelta } from '../../../src/apis/backend.ts'
import type { AssistantMessage, ContentPart, FinishReason, Json, Message, ToolCall } from '../../../src/schema/index.ts'
import { replyDeltas } from '../../../src/apis/server-side.ts'

const texts = ['hello', 'two\nlines', 'ünï→码🙂', '"quoted" \\ and \u2028', ' ', '{"a":1}', '</think>', 'data: x\n\n']
const pixel = 'data:image/png;base64,iVBORw0KGgo='

/** Makes up conversations and replies, in the one form for each meaning. The same seed gives the same ones. */
export class RandomConversation {
  readonly #random: () => number
  #calls = 0

  constructor(seed: number) {
    this.#random = seededRandom(seed)
  }

  messages(): Message[] {
    const messages: Message[] = this.#chance(0.5) ? [{ role: 'system', content: this.#content(false) }] : []
    for (let turns = this.#below(4); turns >= 0; turns -= 1) {
      messages.push({ role: 'user', content: this.#content(true) })
      if (turns === 0) return messages
      const said = this.assistant(false)
      messages.push(said)
      for (const call of said.tool_calls ?? []) messages.push(this.#toolResult(call))
    }
    return messages
  }

  /** An assistant's message. It has a refusal only if `mayRefuse`: not every API can send one back as a refusal. */
  assistant(mayRefuse: boolean): AssistantMessage {
    const calls = this.#chance(0.5) ? Array.from({ length: 1 + this.#below(3) }, () => this.#call()) : []
    const refusal = mayRefuse && calls.length === 0 && this.#chance(0.2) ? this.#text() : undefined
    const hasText = calls.length === 0 && refusal === undefined ? true : this.#chance(0.5)
    return {
      role: 'assistant',
      content: hasText ? this.#text() : null,
      ...(this.#chance(0.4) && { reasoning_content: this.#text() }),
      ...(refusal !== undefined && { refusal }),
      ...(calls.length > 0 && { tool_calls: calls }),
    }
  }

  reply(): BackendReply {
    const message = this.assistant(true)
    const reasons: FinishReason[] = message.tool_calls ? ['tool_calls'] : ['stop', 'length', 'content_filter']
    const [input, output] = [10 + this.#below(100), 10 + this.#below(100)]
    const usage = { calls: 1, input, cachedInput: this.#below(10), output, reasoning: this.#below(10) }
    return { message, finishReason: this.#pick(reasons), usage }
  }

  /** The deltas of a message, cut into pieces anywhere. */
  deltas(message: AssistantMessage): ReplyDelta[] {
    return replyDeltas(message).flatMap((delta) => {
      if (delta.kind === 'tool-call') return [delta]
      const pieces: ReplyDelta[] = []
      for (let rest = delta.text; rest !== '';) {
        const length = 1 + this.#below(rest.length)
        pieces.push({ ...delta, text: rest.slice(0, length) })
        rest = rest.slice(length)
      }
      return pieces
    })
  }

  #content(mayHaveImages: boolean): string | readonly ContentPart[] {
    if (this.#chance(0.6)) return this.#text()
    const parts: ContentPart[] = [
      { type: 'text', text: this.#text() },
      { type: 'text', text: this.#text() },
    ]
    if (mayHaveImages) parts.splice(this.#below(2), 1, { type: 'image_url', image_url: { url: pixel } })
    return parts
  }

  #toolResult(call: ToolCall): Message {
    const content = this.#content(true)
    const result = { role: 'tool', tool_call_id: call.id, content } as const
    return this.#chance(0.2) ? { ...result, is_error: true } : result
  }

  #call(): ToolCall {
    this.#calls += 1
    const written = this.#chance(0.1) ? '{"cut": [1,' : JSON.stringify({ text: this.#text(), value: this.#json(2) })
    return { id: `call_${this.#calls}`, type: 'function', function: { name: 'do_it', arguments: written } }
  }

  #json(depth: number): Json {
    if (depth === 0 || this.#chance(0.5)) return this.#pick([null, true, 0, -1.5, 1e21, this.#text()])
    return this.#chance(0.5) ? [this.#json(depth - 1)] : { '': this.#json(depth - 1), b: this.#text() }
  }

  #text(): string {
    return this.#pick(texts)
  }

  #pick<Value>(values: readonly Value[]): Value {
    const value = values[this.#below(values.length)]
    if (value === undefined) throw new Error('nothing to pick from')
    return value
  }

  #below(limit: number): number {
    return Math.floor(this.#random() * limit)
  }

  #chance(share: number): boolean {
    return this.#random() < share
  }
}
