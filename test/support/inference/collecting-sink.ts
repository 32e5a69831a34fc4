import type { AssistantMessage } from '../../../src/schema/index.ts'
import type { PartialReply, ReplyDelta, ReplyEvent, ReplySink } from '../../../src/apis/backend.ts'

/** Takes everything, or only as a test says about each event, and remembers it. */
export class CollectingSink implements ReplySink {
  readonly events: ReplyEvent[] = []
  /** How many came together. */
  readonly reads: number[] = []
  readonly partials: PartialReply[] = []
  readonly #takes: (event: ReplyEvent, resume: () => void) => boolean

  constructor(takes: (event: ReplyEvent, resume: () => void) => boolean = () => true) {
    this.#takes = takes
  }

  onEvents(events: readonly ReplyEvent[], resume: () => void): boolean {
    this.reads.push(events.length)
    let takesMore = true
    for (const event of events) {
      this.events.push(event)
      takesMore = this.#takes(event, resume)
    }
    return takesMore
  }

  onPartial(partial: PartialReply): void {
    this.partials.push(partial)
  }

  get deltas(): ReplyDelta[] {
    return this.events.flatMap(({ deltas }) => deltas)
  }

  /** What the deltas come to, put together in the plainest way. */
  get message(): AssistantMessage {
    return foldDeltas(this.deltas)
  }
}

export function foldDeltas(deltas: readonly ReplyDelta[]): AssistantMessage {
  const texts = { content: '', reasoning: '', refusal: '' }
  const calls: { id: string; type: 'function'; function: { name: string; arguments: string } }[] = []
  for (const delta of deltas) {
    if (delta.kind === 'tool-call') {
      if (delta.index !== calls.length) throw new Error(`call ${delta.index} begins as number ${calls.length}`)
      calls.push({ id: delta.id, type: 'function', function: { name: delta.name, arguments: '' } })
    } else if (delta.kind === 'arguments') {
      const call = calls[delta.index]
      if (!call) throw new Error(`call ${delta.index} goes on before it began`)
      call.function.arguments += delta.text
    } else {
      texts[delta.kind] += delta.text
    }
  }
  return {
    role: 'assistant',
    content: texts.content === '' ? null : texts.content,
    ...(texts.reasoning !== '' && { reasoning_content: texts.reasoning }),
    ...(texts.refusal !== '' && { refusal: texts.refusal }),
    ...(calls.length > 0 && { tool_calls: calls }),
  }
}
