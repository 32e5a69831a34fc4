/** Takes the data of each event, in order. */
export interface EventSink {
  onEvent(data: string): void
}

/**
 * The longest line, and the longest event of several lines: a longer one is an error. It is this large because a server may
 * put all token ids of a long prompt, or a whole Responses object, into one event.
 */
export const maxLineBytes = 8 * 1024 * 1024

const newline = 0x0a
const carriageReturn = 0x0d

/**
 * Reads server-sent events from chunks of bytes that may be cut anywhere. Only whole lines are decoded: a newline byte is
 * never part of another character in UTF-8, so a character cut in two never reaches the decoder. Lines may end in LF or CRLF
 * (a lone CR, which the specification also allows, no inference server sends). Comments and all fields but `data` are
 * skipped, because every dialect says in the JSON what an event is. An event without its closing empty line is not delivered.
 */
export class SseDecoder {
  readonly #sink: EventSink
  /** The beginning of a line whose end has not come yet. */
  #rest: Buffer[] = []
  #restBytes = 0
  #data: string | undefined

  constructor(sink: EventSink) {
    this.#sink = sink
  }

  /** Throws what the sink throws, and a RangeError when a line, or an event, grows past `maxLineBytes`. */
  push(chunk: Buffer): void {
    const end = chunk.lastIndexOf(newline)
    if (end === -1) {
      this.#keep(chunk)
      return
    }
    // Servers flush whole events, so most chunks end with a newline and nothing is left over from the chunk before.
    const whole = end === chunk.length - 1
    const lines = whole ? chunk : chunk.subarray(0, end + 1)
    if (this.#restBytes === 0) {
      this.#lines(lines.toString('utf8'))
    } else {
      const joined = Buffer.concat([...this.#rest, lines])
      this.#rest = []
      this.#restBytes = 0
      this.#lines(joined.toString('utf8'))
    }
    if (!whole) this.#keep(chunk.subarray(end + 1))
  }

  #keep(piece: Buffer): void {
    if (piece.length === 0) return
    this.#restBytes += piece.length
    if (this.#restBytes > maxLineBytes)
      throw new RangeError(`a line of the stream is longer than ${maxLineBytes} bytes`)
    this.#rest.push(piece)
  }

  /** `text` ends with a newline. */
  #lines(text: string): void {
    let start = 0
    while (start < text.length) {
      const stop = text.indexOf('\n', start)
      const end = stop > start && text.charCodeAt(stop - 1) === carriageReturn ? stop - 1 : stop
      if (end === start) this.#endEvent()
      else if (text.startsWith('data', start)) this.#dataLine(text, start + 4, end)
      start = stop + 1
    }
  }

  #dataLine(text: string, colon: number, end: number): void {
    let value = ''
    if (colon < end) {
      // `database: x` is another field.
      if (text[colon] !== ':') return
      // One space after the colon belongs to the syntax.
      const from = text[colon + 1] === ' ' && colon + 1 < end ? colon + 2 : colon + 1
      value = text.slice(from, end)
    }
    if (this.#data === undefined) {
      this.#data = value
      return
    }
    this.#data += `\n${value}`
    if (this.#data.length > maxLineBytes)
      throw new RangeError(`an event of the stream is longer than ${maxLineBytes} characters`)
  }

  #endEvent(): void {
    const data = this.#data
    this.#data = undefined
    if (data !== undefined && data !== '') this.#sink.onEvent(data)
  }
}
