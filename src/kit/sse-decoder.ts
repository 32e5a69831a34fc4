/** Takes the data of each event, in order. */
export interface EventSink {
  onEvent(data: string): void
}

/** The most that a line, or the data of one event, may hold. */
export interface EventLimit {
  readonly maxBytes: number
  /** The error that `push` throws beyond that. */
  readonly tooLong: (maxBytes: number) => Error
}

const newline = 0x0a
const carriageReturn = 0x0d
const byteOrderMark = '\u{feff}'

/**
 * Reads server-sent events from chunks of bytes that may be cut anywhere. Only whole lines are decoded: a newline byte is
 * never part of another character in UTF-8, so a character cut in two never reaches the decoder. Lines may end in LF or CRLF
 * (a lone CR, which the specification also allows, is not sent by the servers read here). Comments and the names of events are
 * skipped, because all formats read here say in the data what an event is. An event without its closing empty line is not
 * delivered.
 */
export class SseDecoder {
  readonly #sink: EventSink
  readonly #limit: EventLimit
  #hasBegun = false
  /** The beginning of a line whose end has not come yet. */
  #rest: Buffer[] = []
  #restBytes = 0
  #data: string | undefined
  /** The bytes of an event of several lines. Most events have one line, and nothing is counted. */
  #dataBytes = 0
  #lastId: string | undefined
  #retryMs: number | undefined

  constructor(sink: EventSink, limit: EventLimit) {
    this.#sink = sink
    this.#limit = limit
  }

  /** The id of the last event that had one, from which the stream can be resumed. */
  get lastId(): string | undefined {
    return this.#lastId
  }

  /** How long to wait before the stream is resumed, if the server said so. */
  get retryMs(): number | undefined {
    return this.#retryMs
  }

  /** Throws what the sink throws, and the error of the limit when a line, or an event, grows past it. */
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
      this.#decode(lines)
    } else {
      const joined = Buffer.concat([...this.#rest, lines])
      this.#rest = []
      this.#restBytes = 0
      this.#decode(joined)
    }
    if (!whole) this.#keep(chunk.subarray(end + 1))
  }

  #keep(piece: Buffer): void {
    if (piece.length === 0) return
    this.#restBytes += piece.length
    this.#checkBytes(this.#restBytes)
    this.#rest.push(piece)
  }

  /** `bytes` end with a newline. */
  #decode(bytes: Buffer): void {
    // The lines are measured one by one only where one of them may be too long.
    if (bytes.length > this.#limit.maxBytes) this.#checkLines(bytes)
    const text = bytes.toString('utf8')
    // A stream may begin with a byte order mark, which is no part of its first line.
    this.#lines(!this.#hasBegun && text.startsWith(byteOrderMark) ? text.slice(1) : text)
    this.#hasBegun = true
  }

  #lines(text: string): void {
    let start = 0
    while (start < text.length) {
      const stop = text.indexOf('\n', start)
      const end = stop > start && text.charCodeAt(stop - 1) === carriageReturn ? stop - 1 : stop
      if (end === start) this.#endEvent()
      else if (text.startsWith('data', start)) this.#dataLine(text, start + 4, end)
      else if (text.startsWith('id', start)) this.#lastId = fieldValue(text, start + 2, end) ?? this.#lastId
      else if (text.startsWith('retry:', start)) this.#retryLine(text, start + 5, end)
      start = stop + 1
    }
  }

  #dataLine(text: string, colon: number, end: number): void {
    const value = fieldValue(text, colon, end)
    if (value === undefined) return
    if (this.#data === undefined) {
      this.#data = value
      return
    }
    if (this.#dataBytes === 0) this.#dataBytes = Buffer.byteLength(this.#data)
    this.#dataBytes += Buffer.byteLength(value) + 1
    this.#checkBytes(this.#dataBytes)
    this.#data += `\n${value}`
  }

  #retryLine(text: string, colon: number, end: number): void {
    const value = fieldValue(text, colon, end)
    if (value !== undefined && /^\d+$/.test(value)) this.#retryMs = Number(value)
  }

  #endEvent(): void {
    const data = this.#data
    this.#data = undefined
    this.#dataBytes = 0
    if (data !== undefined && data !== '') this.#sink.onEvent(data)
  }

  #checkLines(bytes: Buffer): void {
    let start = 0
    while (start < bytes.length) {
      const stop = bytes.indexOf(newline, start)
      this.#checkBytes(stop - start)
      start = stop + 1
    }
  }

  #checkBytes(bytes: number): void {
    const { maxBytes, tooLong } = this.#limit
    if (bytes > maxBytes) throw tooLong(maxBytes)
  }
}

/** The value of a field whose name ends at `colon`; undefined if it does not end there: `database: x` is not `data`. */
function fieldValue(text: string, colon: number, end: number): string | undefined {
  if (colon === end) return ''
  if (text[colon] !== ':') return undefined
  // One space after the colon belongs to the syntax.
  return text.slice(text[colon + 1] === ' ' && colon + 1 < end ? colon + 2 : colon + 1, end)
}
