import { isUtf8 } from 'node:buffer'
import type { TaskRow } from './task-source.ts'

const replacementCharacter = '\u{fffd}'
/** Stands where bytes are no text. Unicode keeps it free for such uses. */
const noText = '\u{ffff}'
const lineFeed = 0x0a

/**
 * Finds rows of a file that is not UTF-8. Reading puts a replacement character wherever bytes are no text, without a word: a
 * table in another encoding would be asked about and scored with other words than it has. Such a character may also
 * stand in a file that is UTF-8, so the bytes decide: a line with bytes that are none is marked before it is read.
 */
export class Utf8Check {
  #isBroken = false

  /** Passes the bytes of the file on, cut between characters. */
  async *watch(chunks: AsyncIterable<Buffer>): AsyncGenerator<Buffer, void, void> {
    let rest: Buffer = Buffer.alloc(0)
    for await (const chunk of chunks) {
      const bytes = rest.length > 0 ? Buffer.concat([rest, chunk]) : chunk
      const end = lastWholeCharacter(bytes)
      rest = bytes.subarray(end)
      if (end > 0) yield this.#marked(bytes.subarray(0, end))
    }
    if (rest.length > 0) yield this.#marked(rest)
  }

  /** The row, or what is wrong with it. */
  readonly row = (row: TaskRow): TaskRow => {
    if (!this.#isBroken) return row
    const text = 'problem' in row ? row.problem : JSON.stringify(row.value)
    return text.includes(noText) ? { at: row.at, problem: 'it is not UTF-8; save the file in this encoding' } : row
  }

  #marked(bytes: Buffer): Buffer {
    if (isUtf8(bytes)) return bytes
    this.#isBroken = true
    const lines: Buffer[] = []
    for (let start = 0; start < bytes.length;) {
      const end = bytes.indexOf(lineFeed, start) + 1 || bytes.length
      const line = bytes.subarray(start, end)
      lines.push(isUtf8(line) ? line : Buffer.from(line.toString().replaceAll(replacementCharacter, noText)))
      start = end
    }
    return Buffer.concat(lines)
  }
}

/** Where the bytes end, without those of a character that goes on in the next chunk. */
function lastWholeCharacter(bytes: Buffer): number {
  for (let back = 1; back <= 3 && back <= bytes.length; back += 1) {
    const byte = bytes.readUInt8(bytes.length - back)
    // The first byte of a character says how many it has; others begin with the bits 10.
    const size = byte < 0xc0 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4
    if (size > back) return bytes.length - back
    if (byte < 0x80 || size > 1) break
  }
  return bytes.length
}
