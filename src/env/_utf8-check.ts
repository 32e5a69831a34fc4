import { isUtf8 } from 'node:buffer'
import type { TaskRow } from './task-source.ts'

const replacementCharacter = '\u{fffd}'
/** Marks bytes that are no text. Unicode reserves this character for such uses. */
const noText = '\u{ffff}'
const lineFeed = 0x0a

/**
 * Finds rows of a file that is not UTF-8. Decoding silently replaces invalid bytes by a replacement character, so a table in
 * another encoding would be asked and scored with wrong words. A valid file may contain such a character too, so the bytes
 * decide: a line with invalid bytes is marked before it is decoded.
 */
export class Utf8Check {
  #isBroken = false

  /** Passes on the bytes of the file, cut between characters. */
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

  /** The row itself, or its problem if it is marked. */
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

/** The end of the last whole character; the bytes after it belong to a character that continues in the next chunk. */
function lastWholeCharacter(bytes: Buffer): number {
  for (let back = 1; back <= 3 && back <= bytes.length; back += 1) {
    const byte = bytes.readUInt8(bytes.length - back)
    // The first byte of a character tells its length; the other bytes begin with the bits 10.
    const size = byte < 0xc0 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4
    if (size > back) return bytes.length - back
    if (byte < 0x80 || size > 1) break
  }
  return bytes.length
}
