import { countPieces, eachPiece, markerId, pieceId } from './_tokenizer.ts'
import type { AssistantMessage, Message } from '../schema/index.ts'

/** The part of a reply that a token belongs to; a `marker` is written by the chat template alone. */
export type TokenPart = 'marker' | 'reasoning' | 'content' | 'name' | 'arguments'

export interface Token {
  readonly id: number
  readonly piece: string
  readonly part: TokenPart
  /** The index of the tool call that the token belongs to, -1 for none. */
  readonly call: number
}

/** Takes a conversation piece by piece: a counter or a list. The same walk feeds both, so they agree. */
interface TokenSink {
  marker(name: string, call?: number): void
  text(text: string, part: TokenPart, call?: number): void
}

export class TokenCounter implements TokenSink {
  count = 0

  marker(): void {
    this.count += 1
  }

  text(text: string): void {
    this.count += countPieces(text)
  }
}

export class TokenList implements TokenSink {
  readonly tokens: Token[] = []

  marker(name: string, call = -1): void {
    this.tokens.push({ id: markerId(name), piece: name, part: 'marker', call })
  }

  text(text: string, part: TokenPart, call = -1): void {
    eachPiece(text, (piece) => this.tokens.push({ id: pieceId(piece), piece, part, call }))
  }
}

/**
 * The chat template, up to where the reply begins. An assistant's earlier reply is written exactly as it was sampled, so the next
 * prompt starts with this prompt followed by its reply: trainers rely on that.
 */
export function writePrompt(sink: TokenSink, messages: readonly Message[], toolsText: string): void {
  if (toolsText !== '') {
    sink.marker('<|tools|>')
    sink.text(toolsText, 'content')
    sink.marker('<|end|>')
  }
  for (const message of messages) {
    sink.marker(`<|${message.role}|>`)
    if (message.role === 'assistant') {
      writeReply(sink, message)
    } else if (typeof message.content === 'string') {
      sink.text(message.content, 'content')
    } else {
      for (const part of message.content) {
        if (part.type === 'text') sink.text(part.text, 'content')
        else sink.marker('<|image|>')
      }
    }
    sink.marker('<|end|>')
  }
  sink.marker('<|assistant|>')
}

/** The sampled text of a reply, without the end marker. */
export function writeReply(sink: TokenSink, message: AssistantMessage): void {
  if (message.reasoning_content !== undefined) {
    sink.marker('<think>')
    sink.text(message.reasoning_content, 'reasoning')
    sink.marker('</think>')
  }
  if (message.content !== null) sink.text(message.content, 'content')
  const calls = message.tool_calls ?? []
  for (const [index, call] of calls.entries()) {
    sink.marker('<tool_call>', index)
    sink.text(call.function.name, 'name', index)
    sink.marker('<arguments>', index)
    sink.text(call.function.arguments, 'arguments', index)
  }
}

/** The ids of a text that no template is put around. */
export function textIds(text: string): Int32Array {
  const list = new TokenList()
  list.text(text, 'content')
  return Int32Array.from(list.tokens, (token) => token.id)
}
