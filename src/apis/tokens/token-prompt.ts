import { sameNumbers } from '../../kit/index.ts'
import { growingIds } from './token-scanner.ts'

/** The factor by which memory grows, so that a prompt is copied a few times in all and not every turn. */
const growth = 2

/** The memory of one conversation. It only grows at its end, so prompts that were handed out before stay as they are. */
class PromptBuffer {
  readonly #ids = growingIds()
  #json = Buffer.allocUnsafeSlow(1024)
  count = 0
  jsonLength = 0

  append(ids: Int32Array): void {
    if (ids.length === 0) return
    const text = (this.count > 0 ? ',' : '') + ids.join(',')
    const jsonLength = this.jsonLength + text.length
    if (jsonLength > this.#json.length) {
      const larger = Buffer.allocUnsafeSlow(jsonLength * growth)
      larger.set(this.json(this.jsonLength))
      this.#json = larger
    }
    this.#json.write(text, this.jsonLength, 'latin1')
    this.#ids.append(Int32Array.from(ids))
    this.count += ids.length
    this.jsonLength = jsonLength
  }

  ids(count: number): Int32Array<ArrayBuffer> {
    return this.#ids.view().subarray(0, count)
  }

  json(length: number): Buffer {
    return this.#json.subarray(0, length)
  }
}

/**
 * A prompt as token ids, with its JSON text. The prompt of the next turn shares its memory, so that a turn costs what is new in it,
 * whatever the length of the conversation.
 */
export class TokenPrompt {
  readonly #buffer: PromptBuffer
  readonly #count: number
  readonly #jsonLength: number

  private constructor(buffer: PromptBuffer) {
    this.#buffer = buffer
    this.#count = buffer.count
    this.#jsonLength = buffer.jsonLength
  }

  static of(...parts: readonly Int32Array[]): TokenPrompt {
    const buffer = new PromptBuffer()
    for (const part of parts) buffer.append(part)
    return new TokenPrompt(buffer)
  }

  get length(): number {
    return this.#count
  }

  get ids(): Int32Array<ArrayBuffer> {
    return this.#buffer.ids(this.#count)
  }

  /** The ids with commas between them, without brackets. */
  get json(): Buffer {
    return this.#buffer.json(this.#jsonLength)
  }

  /** Whether these are the ids of this prompt. Cheap where they share its memory. */
  hasIds(ids: Int32Array): boolean {
    return sameNumbers(ids, this.ids)
  }

  /** This prompt and more ids. A prompt that was continued before is copied: a conversation may fork. */
  extended(...parts: readonly Int32Array[]): TokenPrompt {
    if (this.#buffer.count !== this.#count) return TokenPrompt.of(this.ids, ...parts)
    for (const part of parts) this.#buffer.append(part)
    return new TokenPrompt(this.#buffer)
  }
}
