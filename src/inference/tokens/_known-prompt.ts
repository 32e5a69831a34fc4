import { growingIds } from './_growing-array.ts'
import { isDigit } from '../../kit/index.ts'

/** More room than is needed, whenever there is none left: what is there is then copied a few times in all, not every turn. */
const growth = 2

/**
 * A prompt that a server wrote out: its ids as text, and the same as numbers. The next turn's prompt begins with it, so the
 * text is only compared, at the speed of memory, and what follows it is all that is read. Both only ever grow at their end:
 * what was handed out before stays as it is, and the prompts of a long conversation share one memory.
 */
export class KnownPrompt {
  #text: Buffer
  #textLength: number
  readonly #ids = growingIds()

  /** `text` is the digits and commas between the brackets. */
  constructor(text: Uint8Array, ids: Int32Array<ArrayBuffer>) {
    this.#text = Buffer.from(text)
    this.#textLength = text.length
    this.#ids.append(ids)
  }

  get bytes(): number {
    return this.#text.length + this.#ids.byteLength
  }

  get textLength(): number {
    return this.#textLength
  }

  /** Where the text ends in `bytes`, if it begins at `at`: a comma or a space or the closing bracket is there. Otherwise -1. */
  endIn(bytes: Uint8Array, at: number): number {
    const end = at + this.#textLength
    // A digit there would make the last number another one. Whoever gave the ids away took them from here, too.
    if (end >= bytes.length || isDigit(bytes[end]) || this.#ids.byteLength === 0) return -1
    return this.#text.compare(bytes, at, end, 0, this.#textLength) === 0 ? end : -1
  }

  /** Whether the text of another prompt is this one's, or goes on from it. */
  begins(text: Uint8Array): boolean {
    const end = this.#textLength
    if (end > text.length || isDigit(text[end])) return false
    return this.#text.compare(text, 0, end, 0, end) === 0
  }

  /** The prompt that goes on with `more`, written as `text`, comma first. */
  extend(text: Uint8Array, more: Int32Array<ArrayBuffer>): Int32Array<ArrayBuffer> {
    const textLength = this.#textLength + text.length
    if (textLength > this.#text.length) this.#text = grown(this.#text, textLength)
    this.#text.set(text, this.#textLength)
    this.#textLength = textLength
    this.#ids.append(more)
    return this.#ids.view()
  }
}

function grown(text: Buffer, length: number): Buffer {
  const larger = Buffer.allocUnsafeSlow(length * growth)
  larger.set(text)
  return larger
}
