import type { TaskRow } from './task-source.ts'

const replacementCharacter = '\u{fffd}'

/**
 * Finds rows of a file that is not UTF-8. Reading puts a replacement character wherever bytes are no text, without a word: a
 * table in another encoding would be asked about and scored with other words than it has. Such a character may also
 * stand in a file that is UTF-8, so the bytes decide. In a file with bytes that are none, every row with one is suspect.
 */
export class Utf8Check {
  readonly #decoder = new TextDecoder('utf-8', { fatal: true })
  #isBroken = false

  /** Passes the bytes of the file on. */
  async *watch(chunks: AsyncIterable<Buffer>): AsyncGenerator<Buffer, void, void> {
    for await (const chunk of chunks) {
      this.#decode(chunk)
      yield chunk
    }
    this.#decode()
  }

  /** The row, or what is wrong with it. */
  readonly row = (row: TaskRow): TaskRow => {
    if (!this.#isBroken || 'problem' in row) return row
    if (!JSON.stringify(row.value).includes(replacementCharacter)) return row
    return { at: row.at, problem: 'it is not UTF-8; save the file in this encoding' }
  }

  #decode(chunk?: Buffer): void {
    if (this.#isBroken) return
    try {
      this.#decoder.decode(chunk, { stream: chunk !== undefined })
    } catch {
      this.#isBroken = true
    }
  }
}
