import type { ReplyDelta, ReplyEvent } from '../backend.ts'

/** One event of a stream on its way to a sink, filled in by the assembler that reads it. */
export class EventDraft implements ReplyEvent {
  data: string
  document: object | undefined
  readonly deltas: ReplyDelta[] = []
  isEnd = false

  constructor(data: string) {
    this.data = data
  }

  /** Sets the parsed JSON and its text. Long lists of tokens may have been taken out of both. */
  parsed(document: object, data: string): void {
    this.document = document
    this.data = data
  }

  /** Adds a piece of text, unless it is empty. */
  say(kind: 'content' | 'reasoning' | 'refusal', text: string): void {
    if (text !== '') this.deltas.push({ kind, text })
  }

  beginCall(index: number, { id, name }: { readonly id: string; readonly name: string }): void {
    this.deltas.push({ kind: 'tool-call', index, id, name })
  }

  sayArguments(index: number, text: string): void {
    if (text !== '') this.deltas.push({ kind: 'arguments', index, text })
  }
}
