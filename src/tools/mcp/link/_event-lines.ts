export interface EventLinesOptions {
  /** Takes the data of each event, in order. */
  readonly onEvent: (data: string) => void
  /** The most that one event may hold. The length of lines is bounded by the code that splits them. */
  readonly maxBytes: number
  /** The error that `push` throws beyond that. */
  readonly tooLong: () => Error
}

/** Reads server-sent events from lines, and keeps the id of the last one, from which a stream can be resumed. */
export class EventLines {
  readonly #options: EventLinesOptions
  #data: string | undefined
  /** The bytes of an event of several lines. Most events have one line, and nothing is counted. */
  #bytes = 0
  #lastId: string | undefined
  #retryMs: number | undefined

  constructor(options: EventLinesOptions) {
    this.#options = options
  }

  get lastId(): string | undefined {
    return this.#lastId
  }

  /** How long to wait before the stream is resumed, if the server said so. */
  get retryMs(): number | undefined {
    return this.#retryMs
  }

  /** Takes a line without its end; lines may end in LF or CRLF. */
  push(raw: string): void {
    const line = raw.endsWith('\r') ? raw.slice(0, -1) : raw
    if (line === '') {
      this.#endEvent()
      return
    }
    const colon = line.indexOf(':')
    const field = colon === -1 ? line : line.slice(0, colon)
    // One space after the colon belongs to the syntax.
    const value = colon === -1 ? '' : line.slice(line[colon + 1] === ' ' ? colon + 2 : colon + 1)
    if (field === 'data') this.#keep(value)
    else if (field === 'id') this.#lastId = value
    else if (field === 'retry' && /^\d+$/.test(value)) this.#retryMs = Number(value)
  }

  #keep(value: string): void {
    if (this.#data === undefined) {
      this.#data = value
      return
    }
    if (this.#bytes === 0) this.#bytes = Buffer.byteLength(this.#data)
    this.#bytes += Buffer.byteLength(value) + 1
    if (this.#bytes > this.#options.maxBytes) {
      this.#clear()
      throw this.#options.tooLong()
    }
    this.#data = `${this.#data}\n${value}`
  }

  #endEvent(): void {
    const data = this.#data
    this.#clear()
    if (data !== undefined && data !== '') this.#options.onEvent(data)
  }

  #clear(): void {
    this.#data = undefined
    this.#bytes = 0
  }
}
