import type { Draft } from '../kit/index.ts'
import type { ApiName, AssistantMessage, Json, OtherPart, ToolCall } from '../schema/index.ts'

/**
 * An assistant's turn while it is read from a client's history. It must become the very message that was once replied,
 * whichever API carried it there and back, so each meaning has one form and one order of fields.
 */
export class AssistantDraft {
  text = ''
  reasoning = ''
  refusal = ''
  readonly calls: ToolCall[] = []
  readonly #others: OtherPart[] = []

  addCall(id: string, name: string, written: string): void {
    this.calls.push({ id, type: 'function', function: { name, arguments: written } })
  }

  /** Adds a part that only this API can express. */
  addOther(api: ApiName, value: Json): void {
    this.#others.push({ type: 'other', api, value })
  }

  message(): AssistantMessage {
    const message: Draft<AssistantMessage> = {
      role: 'assistant',
      content: this.#content(),
    }
    if (this.reasoning !== '') message.reasoning_content = this.reasoning
    if (this.refusal !== '') message.refusal = this.refusal
    if (this.calls.length > 0) message.tool_calls = this.calls
    if (this.#others.length > 0) message.others = this.#others
    return message
  }

  /** The content. Without text it is null if the turn has anything else; servers refuse a turn that has neither. */
  #content(): string | null {
    if (this.text !== '') return this.text
    return this.calls.length + this.#others.length > 0 || this.refusal !== '' ? null : ''
  }
}
