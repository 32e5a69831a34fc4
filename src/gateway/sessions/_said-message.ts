import { hash } from 'node:crypto'
import type { Message } from '../../schema/index.ts'
import { changedMeaningsOf, looseMeaningOf, meaningOf, type Meaning } from './_meaning.ts'

/** A message with the digests that tell it from others, each worked out once, when it is first asked for. */
export class SaidMessage {
  readonly message: Message
  #meaning: Meaning | undefined
  #digest: string | undefined
  #looseDigest: string | undefined
  #wholeDigest: string | undefined

  constructor(message: Message) {
    this.message = message
  }

  get meaning(): Meaning {
    return (this.#meaning ??= meaningOf(this.message))
  }

  get digest(): string {
    return (this.#digest ??= digestOf(this.meaning))
  }

  /** A digest that is the same however the tool calls are spelled. Undefined for messages without tool calls. */
  get looseDigest(): string | undefined {
    if (this.#looseDigest === undefined) {
      // Without tool calls this is only asked, not worked out, so there is nothing to remember.
      const loose = looseMeaningOf(this.message)
      this.#looseDigest = loose && digestOf(loose)
    }
    return this.#looseDigest
  }

  /** The loose digests that it may have when Claude Code sends it back. */
  changedDigests(): string[] {
    return this.message.role === 'assistant' ? changedMeaningsOf(this.message).map(digestOf) : []
  }

  /** A digest of the message with its reasoning, which does not count for the others. */
  get wholeDigest(): string {
    return (this.#wholeDigest ??= withReasoning(this.message, this.digest))
  }
}

function withReasoning(message: Message, digest: string): string {
  const reasoning = message.role === 'assistant' ? message.reasoning_content : undefined
  return reasoning ? hash('sha256', digest + reasoning, 'base64url') : digest
}

function digestOf({ head, text }: Meaning): string {
  const meaning = head + text
  // Half a character (a lone surrogate, left where a text was cut) has no UTF-8: all such halves would hash alike.
  return hash('sha256', meaning.isWellFormed() ? meaning : JSON.stringify(meaning), 'base64url')
}
