import { isUtf8 } from 'node:buffer'

export interface EventSink {
  onEvent(data: string): void
}

interface EventRules {
  /** The most bytes of a line, or of the data of one event. */
  readonly maxBytes: number
  /** The error that `push` throws beyond that. */
  readonly tooLong: (maxBytes: number) => Error
  /** The error that `push` throws for a line that is not UTF-8. Without it, such bytes are replaced. */
  readonly notUtf8?: () => Error
}

const newline = 0x0a
const carriageReturn = 0x0d
const byteOrderMark = '\u{feff}'

/**
 * Reads server-sent events from chunks of bytes that may be cut anywhere. Only whole lines, ending in LF or CRLF, are
 * decoded, so a character cut in two never reaches the decoder. Comments and the names of events are skipped. An event
 * without its closing empty line is not delivered.
 */
export class SseDecoder {
  readonly #sink: EventSink
  readonly #rules: EventRules
  #hasBegun = false
  /** The beginning of a line whose end has not come yet. */
  #rest: Buffer[] = []
  #restBytes = 0
  #data: string | undefined
  /** The bytes of an event of several lines. Most events have one line, and nothing is counted. */
  #dataBytes = 0
  #lastId: string | undefined
  #retryMs: number | undefined

  constructor(sink: EventSink, rules: EventRules) {
    this.#sink = sink
    this.#rules = rules
  }

  /** The id of the last event that had one, from which the stream can be resumed. */
  get lastId(): string | undefined {
    return this.#lastId
  }

  /** How long to wait before the stream is resumed, if the server said so. */
  get retryMs(): number | undefined {
    return this.#retryMs
  }

  /** Throws what the sink throws, and the errors of the rules for a line, or an event, that breaks them. */
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

  #decode(bytes: Buffer): void {
    // The lines are measured one by one only where one of them may be too long.
    if (bytes.length > this.#rules.maxBytes) this.#checkLines(bytes)
    const { notUtf8 } = this.#rules
    if (!notUtf8 || isUtf8(bytes)) {
      this.#text(bytes.toString('utf8'))
    } else {
      // What came before is delivered.
      this.#text(bytes.toString('utf8', 0, endOfText(bytes)))
      throw notUtf8()
    }
  }

  #text(text: string): void {
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
    const { maxBytes, tooLong } = this.#rules
    if (bytes > maxBytes) throw tooLong(maxBytes)
  }
}

/** Where the first line begins that is not UTF-8; there is one. */
function endOfText(bytes: Buffer): number {
  let start = 0
  for (;;) {
    const end = bytes.indexOf(newline, start) + 1
    if (end === 0 || !isUtf8(bytes.subarray(start, end))) return start
    start = end
  }
}

/** The value of a field whose name ends at `colon`; undefined if it does not end there: `database: x` is not `data`. */
function fieldValue(text: string, colon: number, end: number): string | undefined {
  if (colon === end) return ''
  if (text[colon] !== ':') return undefined
  // One space after the colon belongs to the syntax.
  return text.slice(text[colon + 1] === ' ' && colon + 1 < end ? colon + 2 : colon + 1, end)
}

/** A server-sent event as it goes over the wire. Neither text may hold a line end. */
export function sseEvent(data: string, name?: string): string {
  return name === undefined ? `data: ${data}\n\n` : `event: ${name}\ndata: ${data}\n\n`
}
