import { hash } from 'node:crypto'
import type { Message } from '../../schema/index.ts'
import { looseMeaningOf, meaningOf, type Meaning } from './_meaning.ts'
import { printOf, type MessagePrint } from './_message-print.ts'

/** A message, and what tells it from others: digests are worked out when they are first asked for, and once. */
export class SaidMessage {
  readonly message: Message
  #meaning: Meaning | undefined
  #digest: string | undefined
  #loose: { readonly digest: string | undefined } | undefined

  constructor(message: Message) {
    this.message = message
  }

  get meaning(): Meaning {
    return (this.#meaning ??= meaningOf(this.message))
  }

  get digest(): string {
    return (this.#digest ??= digestOf(this.meaning))
  }

  /** The same however its tool calls are spelled. Undefined where it makes no difference. */
  looseDigest(): string | undefined {
    if (!this.#loose) {
      const loose = looseMeaningOf(this.message)
      this.#loose = { digest: loose && digestOf(loose) }
    }
    return this.#loose.digest
  }

  /** Of a reply. */
  print(): MessagePrint | undefined {
    return this.message.role === 'assistant' ? printOf(this.message, this.digest) : undefined
  }
}

function digestOf({ head, text }: Meaning): string {
  const meaning = head + text
  // Half a character, as is left where a text was cut, has no bytes of its own: all such halves would be the same.
  return hash('sha256', meaning.isWellFormed() ? meaning : JSON.stringify(meaning), 'base64url')
}
