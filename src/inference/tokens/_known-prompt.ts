import { growingIds } from './_growing-array.ts'
import { isDigit } from '../../kit/index.ts'

/** The factor by which the memory for the text grows, so that the text is copied a few times in all, not every turn. */
const growth = 2

/**
 * A prompt that a server wrote out: its ids as text, and as numbers. The next turn's prompt begins with the same text, so
 * that part is only compared, at the speed of memory, and only what follows is parsed. Text and ids only grow at their end:
 * arrays that were handed out before stay as they are, and the prompts of a long conversation share one memory.
 */
export class KnownPrompt {
  #text: Buffer
  #textLength: number
  readonly #ids = growingIds()

  /** `text` is the part between the brackets: digits and commas. */
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

  /**
   * Where this prompt's text ends in `bytes`, if it begins at `at` and a comma, a space or the closing bracket follows.
   * Otherwise -1.
   */
  endIn(bytes: Uint8Array, at: number): number {
    const end = at + this.#textLength
    // A digit at the end would change the last number. No ids are left if their memory was transferred to another thread.
    if (end >= bytes.length || isDigit(bytes[end]) || this.#ids.byteLength === 0) return -1
    return this.#text.compare(bytes, at, end, 0, this.#textLength) === 0 ? end : -1
  }

  /** Whether the text of another prompt is equal to this one's, or continues it. */
  begins(text: Uint8Array): boolean {
    const end = this.#textLength
    if (end > text.length || isDigit(text[end])) return false
    return this.#text.compare(text, 0, end, 0, end) === 0
  }

  /** Extends the prompt by the ids `more`, whose text begins with a comma, and returns all ids. */
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
