import type { Draft } from '../kit/index.ts'
import type { ApiName, AssistantMessage, Json, OtherPart, ToolCall } from '../schema/index.ts'

/**
 * An assistant's turn while it is read from a client's history. It must come out as the very message that was once
 * replied, whichever API carried it there and back, so there is one form and one order of fields for each meaning.
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

  /** What only this API can say. */
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

  /** No text is null where something else was said instead; servers refuse a turn that has neither. */
  #content(): string | null {
    if (this.text !== '') return this.text
    return this.calls.length + this.#others.length > 0 || this.refusal !== '' ? null : ''
  }
}
